"""README's six tasks, from tiny files."""

import numpy as np
import pytest
from fakes import write_cifar100, write_omniglot
from PIL import Image

from benchmarks.six_tasks import ALPHABETS, GROUPS, write_six_tasks
from lws_lightning.data import CIFAR100CoarseLabel


def test_classes_are_of_unequal_size_and_hold_the_first_images(tmp_path):
    data = write_omniglot(write_cifar100(tmp_path / "data", train_per_class=62), ALPHABETS)
    counts = write_six_tasks(data, tmp_path / "six")
    assert list(counts) == ["fish", "flowers", "greek", "korean", "tifinagh", "vehicles_1"]
    assert (counts["greek"], counts["korean"], counts["tifinagh"]) == (480, 800, 1100)
    sizes = [len(list(folder.iterdir())) for folder in sorted((tmp_path / "six" / "fish").iterdir())]
    assert all(48 < size <= 60 for size in sizes)
    assert len(set(sizes)) > 1
    assert counts["flowers"] == counts["vehicles_1"] == 5 * 62  # asked for more than there are
    for task in CIFAR100CoarseLabel(str(data), tasks=list(GROUPS)).load_tasks():
        for label, name in enumerate(task.class_names):
            first = task.train.images[task.train.labels == label][0].float().mean((1, 2))
            image = np.asarray(Image.open(tmp_path / "six" / task.name / name / "000.jpg"))
            assert image.shape == (GROUPS[task.name][1],) * 2 + (3,)
            assert image.mean((0, 1)) == pytest.approx(first.numpy(), abs=3)  # JPEG


def test_it_does_not_overwrite_and_names_what_is_missing(tmp_path):
    data = write_omniglot(write_cifar100(tmp_path / "data"), ["Greek"])
    with pytest.raises(FileExistsError):
        write_six_tasks(data, data)
    with pytest.raises(FileNotFoundError, match="no folder Korean"):
        write_six_tasks(data, tmp_path / "six")

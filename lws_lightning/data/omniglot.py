"""Omniglot as fifty tasks, one an alphabet (the paper, section "Omniglot")."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.cache import ArrayCache, fingerprint
from lws_lightning.data.download import download_files
from lws_lightning.data.tasks import TaskData
from lws_lightning.randomness import generator_for

__all__ = ["Omniglot"]

_FOLDER = "omniglot-py"
_DRAWINGS = 20
_SIZE = 105
# Alphabet -> its number of characters, in the two parts that the authors made.
_BACKGROUND = {
    "Alphabet_of_the_Magi": 20,
    "Anglo-Saxon_Futhorc": 29,
    "Arcadian": 26,
    "Armenian": 41,
    "Asomtavruli_(Georgian)": 40,
    "Balinese": 24,
    "Bengali": 46,
    "Blackfoot_(Canadian_Aboriginal_Syllabics)": 14,
    "Braille": 26,
    "Burmese_(Myanmar)": 34,
    "Cyrillic": 33,
    "Early_Aramaic": 22,
    "Futurama": 26,
    "Grantha": 43,
    "Greek": 24,
    "Gujarati": 48,
    "Hebrew": 22,
    "Inuktitut_(Canadian_Aboriginal_Syllabics)": 16,
    "Japanese_(hiragana)": 52,
    "Japanese_(katakana)": 47,
    "Korean": 40,
    "Latin": 26,
    "Malay_(Jawi_-_Arabic)": 40,
    "Mkhedruli_(Georgian)": 41,
    "N_Ko": 33,
    "Ojibwe_(Canadian_Aboriginal_Syllabics)": 14,
    "Sanskrit": 42,
    "Syriac_(Estrangelo)": 23,
    "Tagalog": 17,
    "Tifinagh": 55,
}
_EVALUATION = {
    "Angelic": 20,
    "Atemayar_Qelisayer": 26,
    "Atlantean": 26,
    "Aurek-Besh": 26,
    "Avesta": 26,
    "Ge_ez": 26,
    "Glagolitic": 45,
    "Gurmukhi": 45,
    "Kannada": 41,
    "Keble": 26,
    "Malayalam": 47,
    "Manipuri": 40,
    "Mongolian": 30,
    "Old_Church_Slavonic_(Cyrillic)": 45,
    "Oriya": 46,
    "Sylheti": 28,
    "Syriac_(Serto)": 23,
    "Tengwar": 25,
    "Tibetan": 42,
    "ULOG": 26,
}


class Omniglot(MultiTaskDataModule):
    """Fifty tasks of 105x105 black and white images: to tell the characters of one alphabet apart.

    | part | alphabets | characters | drawings of each |
    | --- | --- | --- | --- |
    | background | 30 | 964 (14 to 55 an alphabet) | 20 |
    | evaluation | 20 | 659 (20 to 47 an alphabet) | 20 |

    The tasks bear the names of the alphabets' folders: those of the background part in the order of the
    alphabet, then those of the evaluation part. A character's number is its label plus one.

    Of the 20 drawings of each character, `train_drawings` are training images and the others test images,
    drawn by `split_seed`, the alphabet and the character. (The paper says "a random 80/20 split"; its
    authors' program takes 16 and 4 of each character, as here.) All are used, so `validation: unused` is not
    to be had.

    Images are as in the files, and as torchvision gives them: the ink is 0, the paper 255.

    The files lie under `root` as torchvision unpacks them:
    `omniglot-py/images_{background,evaluation}/<alphabet>/character<number>/*.png`. Only the chosen tasks'
    are needed. Complete files are never written to, so `root` may be read-only. The decoded images are kept
    in `cache_dir`, a few megabytes, and made anew when a name, size or modification time of the files changes.

    MIT licence, copyright 2015 Brenden Lake.
    Lake, Salakhutdinov and Tenenbaum: Human-level concept learning through probabilistic program induction.
    Science 350, 2015.

    Args:
        root: Folder that holds `omniglot-py`.
        train_drawings: Training images of each character, 1 to 19.
        download: Fetch missing files (two archives of 16 MB together; 32,460 files).
        cache_dir: Folder of the decoded images. None: `$XDG_CACHE_HOME/lws_lightning`, or
            `~/.cache/lws_lightning`.
        **options: Those of `MultiTaskDataModule`.

    Raises:
        ValueError: An option is out of range.
        FileNotFoundError: In `setup`, if a file is missing or damaged; names the alphabets.
        RuntimeError: In `prepare_data`, if the download fails.
    """

    neutral_options = MultiTaskDataModule.neutral_options | {"download", "cache_dir"}
    class_counts: Mapping[str, int] = _BACKGROUND | _EVALUATION
    image_size = (1, _SIZE, _SIZE)

    def __init__(
        self,
        root: str = "data",
        train_drawings: int = 16,
        download: bool = False,
        cache_dir: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root=root, **options)
        if not 1 <= train_drawings < _DRAWINGS:
            raise ValueError(
                f"{self.dataset_name}: train_drawings must lie between 1 and {_DRAWINGS - 1}, got {train_drawings}."
            )
        if self.validation == "unused":
            raise ValueError(
                f"{self.dataset_name}: validation: unused is not to be had, since every drawing is a training or a "
                "test image; take validation: split."
            )
        self.train_drawings = train_drawings
        self.download = download
        self.cache_dir = cache_dir

    def prepare_data(self) -> None:
        """Downloads missing files where `download` says so. Lightning calls this in one process only."""
        if not self.download:
            return
        folder = Path(self.root).expanduser() / _FOLDER
        for part, names in self._parts().items():
            download_files(
                folder,
                dataset=self.dataset_name,
                url=_url(part),
                files=[f"{part}/{name}" for name in names],
                problem=_problem,
                fetch=partial(_fetch, folder=folder, part=part, names=names),
            )

    def load_tasks(self) -> list[TaskData]:
        """Reads the chosen tasks, from the cache where it has them.

        Raises:
            FileNotFoundError: A file is missing or damaged.
        """
        self._require_files()
        images = self._images()
        return [self._split_drawings(name, images.pop(name)) for name in self.task_names]  # pop: half the memory

    def _images(self) -> dict[str, Tensor]:
        """Returns each chosen task's `(characters, 20, 105, 105)` images, the drawings in the order of their names."""
        cache = ArrayCache(self.cache_dir, self.dataset_name)
        marks: dict[Path, str] = {}
        images: dict[str, np.ndarray] = {}
        for part, names in self._parts().items():
            for name in names:
                folder = self._part_folder(part) / name
                marks[folder] = fingerprint((file for files in _drawings(folder) for file in files), folder)
                kept = cache.load(folder, marks[folder], (self.class_counts[name], _DRAWINGS, _SIZE, _SIZE))
                if kept is not None:
                    images[name] = kept
        absent = [folder for folder in marks if folder.name not in images]
        total = _DRAWINGS * sum(self.class_counts[folder.name] for folder in absent)
        # None: hidden where nobody watches, that is outside a terminal.
        hidden = True if getattr(rank_zero_only, "rank", 0) or not absent else None
        with tqdm(total=total, desc=f"{self.dataset_name}: decoding", unit="image", disable=hidden) as bar:
            for folder in absent:
                images[folder.name] = self._decode(folder, bar)
                cache.save(folder, marks[folder], images[folder.name])
        return {name: torch.from_numpy(array) for name, array in images.items()}

    def _decode(self, folder: Path, bar: tqdm) -> np.ndarray:
        images = np.empty((self.class_counts[folder.name], _DRAWINGS, _SIZE, _SIZE), np.uint8)
        for character, files in enumerate(_drawings(folder)):
            for drawing, file in enumerate(files):
                try:
                    with Image.open(file) as image:
                        pixels = np.asarray(image.convert("L"))
                except (OSError, SyntaxError, ValueError) as error:  # SyntaxError: Pillow's for a broken PNG
                    raise self._missing([f"  {file}: damaged ({error})"]) from error
                if pixels.shape != (_SIZE, _SIZE):
                    raise self._missing([f"  {file}: damaged ({pixels.shape} instead of {(_SIZE, _SIZE)} pixels)"])
                images[character, drawing] = pixels
            bar.update(len(files))
        return images

    def _split_drawings(self, name: str, images: Tensor) -> TaskData:
        characters = _characters(name)
        orders = [
            torch.randperm(_DRAWINGS, generator=generator_for(self.split_seed, "drawings", name, character))
            for character in characters
        ]
        order = torch.stack(orders)
        rows = torch.arange(len(characters)).unsqueeze(1)
        train, test = order[:, : self.train_drawings], order[:, self.train_drawings :]
        return TaskData(
            name=name,
            num_classes=len(characters),
            train_images=images[rows, train].flatten(0, 1).unsqueeze(1),
            train_labels=rows.expand_as(train).flatten(),
            test_images=images[rows, test].flatten(0, 1).unsqueeze(1),
            test_labels=rows.expand_as(test).flatten(),
            unused_images=torch.empty(0, *self.image_shape, dtype=torch.uint8),
            unused_labels=torch.empty(0, dtype=torch.int64),
            class_names=characters,
        )

    def _parts(self) -> dict[str, list[str]]:
        """Returns the chosen alphabets of each part from which there is any."""
        background = [name for name in self.task_names if name in _BACKGROUND]
        evaluation = [name for name in self.task_names if name in _EVALUATION]
        parts = {"images_background": background, "images_evaluation": evaluation}
        return {part: names for part, names in parts.items() if names}

    def _part_folder(self, part: str) -> Path:
        return Path(self.root).expanduser() / _FOLDER / part

    def _require_files(self) -> None:
        complaints = []
        for part, names in self._parts().items():
            found = [(name, _problem(self._part_folder(part) / name)) for name in names]
            missing = [name for name, what in found if what == "missing"]
            bad = [f"  {name}: {what}" for name, what in found if what not in (None, "missing")]
            if missing:
                bad.append(f"  missing: {', '.join(missing)}")
            if bad:
                complaints += [f"{part} in {self._part_folder(part).resolve()} (from {_url(part)}):", *bad]
        if complaints:
            raise self._missing(complaints)

    def _missing(self, complaints: list[str]) -> FileNotFoundError:
        return FileNotFoundError(
            f"{self.dataset_name}: data files are missing or damaged.\n"
            + "\n".join(complaints)
            + "\nSet --data.download true, or get the archives by hand, unpack them and put the folders there."
        )


def _url(part: str) -> str:
    return f"{torchvision.datasets.Omniglot.download_url_prefix}/{part}.zip"


def _characters(alphabet: str) -> tuple[str, ...]:
    return tuple(f"character{number:02d}" for number in range(1, Omniglot.class_counts[alphabet] + 1))


def _drawings(folder: Path) -> list[list[Path]]:
    """Returns each character's drawings in the order of their names, which end in the drawer's number."""
    return [sorted((folder / character).glob("[!.]*.png")) for character in _characters(folder.name)]


def _problem(folder: Path) -> str | None:
    """Says what is wrong with an alphabet's folder, from the names in it alone; None: nothing."""
    if not folder.is_dir():
        return "missing"
    counts = zip(_characters(folder.name), map(len, _drawings(folder)), strict=True)
    wrong = [f"{character} has {count}" for character, count in counts if count != _DRAWINGS]
    extra = {path.name for path in folder.glob("character*")} - set(_characters(folder.name))
    if extra:
        return f"not Omniglot's (with {', '.join(sorted(extra))})"
    return f"incomplete (of {_DRAWINGS} drawings {', '.join(wrong)})" if wrong else None


def _fetch(temporary: Path, folder: Path, part: str, names: list[str]) -> None:
    """Fetches a part into `temporary`, and takes what is incomplete in `folder` out of the way."""
    torchvision.datasets.Omniglot(temporary, background=part == "images_background", download=True)
    (temporary / _FOLDER / part).replace(temporary / part)
    if any(_problem(temporary / part / name) is not None for name in names):
        return  # `download_files` complains
    for name in names:
        old = folder / part / name
        if old.exists() and _problem(old) is not None:
            old.replace(temporary / name)  # removed with `temporary`

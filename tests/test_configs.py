"""The shipped configurations: the paper's hyper-parameters, what overlays change, and nothing that need not be said."""

from itertools import product

import pytest
import yaml
from locations import CONFIGS
from shipped import (
    LEARNED,
    METHODS,
    ON_LEARNED,
    OTHER_METHODS,
    OVERLAYS,
    PLUS,
    ROWS,
    TRAINING,
    name_of,
    resolve,
    resolved,
)

import lws_lightning
from lws_lightning.data import MultiTaskDataModule
from lws_lightning.methods import MultiTaskMethod
from lws_lightning.networks import NETWORKS
from lws_lightning.records import default_options

PAPERS = [("dkl_mnist", "convnet"), *product(("cifar100", "omniglot"), ("convnet", "resnet18"))]
PAPERS_ROWS = [(folder, network, sharing) for folder, network in PAPERS for sharing in ("learned", "full", "none")]
WEIGHTS = {
    "lr": 1e-3, "weight_decay": 0.0, "decoupled_decay": False, "lr_schedule": "constant", "warmup_steps": 0,
    "adam_eps": 1e-8, "clip_grad_norm": None, "running_stats": "mean", "initialization": None, "learned_layers": None,
    "pretrained_weights": None, "perturb_copies": 0.0, "network_input": None, "frozen_layers": None,
    "copies": "weights", "copy_rank": 8, "feature_cache": "memory", "loss_weights": None, "ema_decay": None,
    "seed": None,
}  # fmt: skip
SEARCH = {
    "nes_samples": 8, "sgd_samples": 8, "min_probability": 1e-3, "gradient_scale": "mean", "credit": "joint",
    "weight_price": 0.0, "sampling": "independent", "initial_probs": None,
    "nes_batch": "own", "critical_z": 0.0, "search_restarts": 0,
}  # fmt: skip
OURS = ("quickstart", "demo", "image_folders")
SIZES = {"dkl_mnist": 3, "cifar100": 20, "omniglot": 20}
NES_LR = {"dkl_mnist": 1e-2, "cifar100": 1e-1, "omniglot": 1e-2}
NAMES = {
    ("dkl_mnist", "convnet"): "dkl_convnet",
    ("cifar100", "convnet"): "cifar100_convnet",
    ("cifar100", "resnet18"): "resnet18_cifar100",
    ("omniglot", "convnet"): "omniglot_convnet",
    ("omniglot", "resnet18"): "resnet18_omniglot",
}
STEPS = {"dkl_convnet": 5000, "cifar100_convnet": 4000} | dict.fromkeys(
    ("resnet18_cifar100", "omniglot_convnet", "resnet18_omniglot"), 20000
)
DATA = {
    "dkl_mnist": ("DKLMNIST", {"train_images_per_task": 500, "upright": True}),
    "cifar100": ("CIFAR100CoarseLabel", {"train_images_per_task": None}),
    "omniglot": ("Omniglot", {"train_drawings": 16}),
}
ALIKE = {"tasks": None, "batch_size": 16, "validation": "none", "seed": None}
TRAINING_PLUS = {"weight_decay": 1e-3, "adam_eps": 1e-5, "clip_grad_norm": 1.0, "ema_decay": 0.995}
LEARNED_PLUS = {"nes_lr": 3.3e-3, "credit": "per_task", "sampling": "systematic", "running_stats": "per_task"}


def read(name):
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())


def model_of(combination):
    """The class of the method and its options."""
    model = resolved(combination)["model"]
    return model["class_path"].removeprefix("lws_lightning."), model["init_args"]


@pytest.mark.parametrize(("folder", "network", "sharing"), PAPERS_ROWS)
def test_rows_have_the_papers_hyper_parameters(folder, network, sharing):
    row = (f"{folder}/{network}_{sharing}",)
    method, given = model_of(row)
    options = dict(given)
    name = options.pop("network")
    assert name == NAMES[folder, network]
    assert name in NETWORKS
    memory = options.pop("max_images_per_pass")  # of no consequence for the result
    assert memory is None or memory >= 256
    if sharing == "learned":
        assert method == "LearnedWeightSharing"
        assert options == WEIGHTS | SEARCH | {"weights_per_layer": SIZES[folder], "nes_lr": NES_LR[folder]}
    else:
        assert method == "FixedSharing"
        assert options == WEIGHTS | {"sharing": sharing, "prior_layers": None}
    data_class, particular = DATA[folder]
    config = resolved(row)
    assert config["seed_everything"] == 0
    assert config["data"]["class_path"] == f"lws_lightning.{data_class}"
    assert config["data"]["init_args"].items() >= (ALIKE | particular).items()
    trainer = config["trainer"]
    assert (trainer["max_steps"], trainer["val_check_interval"]) == (STEPS[name], 200)
    (checkpoint,) = trainer["callbacks"]
    assert checkpoint["class_path"].endswith(".ModelCheckpoint")
    assert checkpoint["init_args"]["save_top_k"] == (-1 if name in ("dkl_convnet", "cifar100_convnet") else 1)


def test_these_are_all_files():
    """So that none of them is without a test."""
    ours = [
        f"{folder}/{name}" for folder in ("quickstart", "demo", "image_folders") for name in ("learned", "full", "none")
    ]
    assert sorted(ROWS) == sorted(["/".join((f, f"{n}_{s}")) for f, n, s in PAPERS_ROWS] + ours)
    assert {name for _, *overlays in OTHER_METHODS for name in overlays} == {f"methods/{name}" for name in METHODS}
    assert {path.stem for path in (CONFIGS / "options").glob("*.yaml")} == {
        *("training_plus", "learned_plus", "trunk", "photographs", "omniglot_28")
    }
    assert {path.parent.name for path in CONFIGS.rglob("*.yaml")} == {
        *DATA,
        "quickstart",
        "demo",
        "image_folders",
        *OVERLAYS,
    }


def given_in(name):
    """The options of the method that a file gives."""
    return read(name)["model"].get("init_args", {})


def defaults_of(name):
    kind = getattr(lws_lightning, name)
    defaults = default_options(kind, MultiTaskMethod if issubclass(kind, MultiTaskMethod) else MultiTaskDataModule)
    return {name: value for name, value in defaults.items() if name != "validation_prefix"}  # from the data


@pytest.mark.parametrize("name", [*ROWS, *(f"methods/{name}" for name in METHODS), TRAINING, LEARNED])
def test_a_file_says_only_what_differs(name):
    file = read(name)
    assert file.keys() <= {"model", "data", "trainer"}  # seed_everything is 0 by itself
    model, data = file["model"], file.get("data", {})
    if data == "data.yaml":
        data = read("image_folders/data")
    sections = [(model.get("class_path", "LearnedWeightSharing"), model), (data.get("class_path", "DKLMNIST"), data)]
    for class_path, section in sections:
        defaults = defaults_of(class_path)
        for option, value in section.get("init_args", {}).items():
            assert option not in defaults or defaults[option] != value


@pytest.mark.parametrize("combination", OTHER_METHODS, ids=name_of)
def test_an_overlay_of_a_method_keeps_what_the_method_has_too(combination):
    row, overlay = combination
    method, options = model_of(combination)
    assert method == read(overlay)["model"]["class_path"]
    kept = {name: value for name, value in given_in(row).items() if name in options}
    assert options == defaults_of(method) | kept | given_in(overlay)
    assert options["network"] == model_of((row,))[1]["network"]
    data, trainer = (dict(resolved(combination)[section]) for section in ("data", "trainer"))
    if overlay == "methods/early_stopping":
        assert data["init_args"]["validation"] == "split"
        assert data["init_args"]["validation_fraction"] == 0.2
        data["init_args"] = data["init_args"] | {"validation": "none"}
    assert data == resolved((row,))["data"]
    assert trainer == resolved((row,))["trainer"]


@pytest.mark.parametrize("folder", ["dkl_mnist", "cifar100"])
@pytest.mark.parametrize("method", ["routing", "undirected"])
def test_methods_with_copies_have_as_many_as_learned_sharing(folder, method):
    assert method in ON_LEARNED
    assert model_of((f"{folder}/convnet_learned", f"methods/{method}"))[1]["weights_per_layer"] == SIZES[folder]


@pytest.mark.parametrize("combination", PLUS, ids=name_of)
def test_what_goes_beyond_the_paper_is_all_that_plus_adds(combination):
    row, *overlays = combination
    assert overlays[0] == TRAINING
    added = TRAINING_PLUS | (LEARNED_PLUS if LEARNED in overlays else {})
    assert (LEARNED in overlays) == row.endswith("learned")
    method, options = model_of((row,))
    assert model_of(combination) == (method, options | added)
    assert resolved(combination)["data"] == resolved((row,))["data"]
    assert resolved(combination)["trainer"] == resolved((row,))["trainer"]


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith("demo")])
def test_every_row_has_its_recipe_beyond_the_paper(row):
    overlays = (TRAINING, LEARNED) if row.endswith("learned") else (TRAINING,)
    options = model_of((row, *overlays))[1]
    assert options.items() >= (TRAINING_PLUS | (LEARNED_PLUS if row.endswith("learned") else {})).items()


@pytest.mark.parametrize("sharing", ["learned", "full", "none"])
def test_photographs_keep_the_sharing_and_are_augmented(sharing):
    row = f"image_folders/{sharing}"
    method, options = model_of((row,))
    assert model_of((row, "options/photographs")) == (method, options | {"network": "omniglot_convnet"})
    data = resolved((row, "options/photographs"))["data"]["init_args"]
    assert data["image_size"] == 64
    assert data["augmentation"][0] == "RandomHorizontalFlip"
    trunk = resolve((row, "options/photographs", "options/trunk"), "--data.image_size", "112")
    assert trunk["model"]["init_args"]["network"].startswith("timm:")
    assert trunk["data"]["init_args"]["image_size"] == 112


@pytest.mark.parametrize("sharing", ["learned", "full", "none"])
def test_small_omniglot_keeps_everything_but_the_images(sharing):
    row, overlay = f"omniglot/convnet_{sharing}", "options/omniglot_28"
    assert model_of((row, overlay)) == model_of((row,))
    small, whole = (resolved(combination)["data"]["init_args"] for combination in ((row, overlay), (row,)))
    assert {name for name in small if small[name] != whole[name]} == {"image_size", "tasks"}
    assert small["image_size"] == 28
    assert len(small["tasks"]) == 10
    assert set(small["tasks"]) < set(lws_lightning.Omniglot.class_counts)


@pytest.mark.parametrize("method", ["sluice", "cross_stitch", "routing"])
def test_the_training_beyond_the_paper_goes_with_every_method(method):
    combination = ("dkl_mnist/convnet_learned", f"methods/{method}")
    name, options = model_of(combination)
    assert model_of((*combination, TRAINING)) == (name, options | TRAINING_PLUS)


def test_options_of_the_command_line_come_last():
    config = resolve(("cifar100/convnet_learned", TRAINING, LEARNED), "--model.weight_decay", "1e-4")
    assert config["model"]["init_args"]["weight_decay"] == 1e-4


@pytest.mark.filterwarnings("error")
def test_what_an_overlay_drops_is_dropped_without_noise(capsys, caplog):
    resolve(("cifar100/convnet_learned", "methods/sluice"))
    assert capsys.readouterr() == ("", "")
    assert not caplog.records


def test_an_overlay_that_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match=r"there is no option --model\.nes_lr of FixedSharing"):
        resolve(("dkl_mnist/convnet_none", LEARNED))


@pytest.mark.parametrize("sharing", ["learned", "full", "none"])
def test_folders_of_images_start_with_the_options_for_dkl_mnist(sharing):
    method, options = model_of((f"image_folders/{sharing}",))
    assert (method, options) == model_of((f"dkl_mnist/convnet_{sharing}",))
    assert options["initialization"] is None  # or pretrained_weights beside it would be refused

"""The contenders and the one recipe that trains all of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lws_lightning.compare.plan import EVALUATIONS
from lws_lightning.compare.trunk import Trunk
from lws_lightning.search import drift_half_life, fastest_decision

__all__ = [
    "BEST",
    "PROBE",
    "TRUNK_CONTENDERS",
    "Contender",
    "augmentation_for",
    "contenders_for",
    "default_network",
    "recipe",
    "with_steps",
]

BEST = "best"
"""Name of the checkpoint with the lowest validation error."""

PROBE = "probe"
"""The contender whose runs do not depend on the seed."""

TRUNK_CONTENDERS = (PROBE, "adapters")
"""The contenders on a pretrained network."""

_MOST_COPIES = 20  # as in the paper's experiments with more tasks than that
_SGD_SAMPLES = 2
_SMALL = 1e-3  # a step size of the search at which its formulas hold
_DECIDES_IN = 1 / 10  # of the run: how soon the search could decide, if only one choice mattered
_TRAINING: dict[str, Any] = {
    "weight_decay": 1e-3,
    "adam_eps": 1e-5,
    "clip_grad_norm": 1.0,
    "ema_decay": 0.995,
    "running_stats": "per_task",
}
"""The values of configs/options/training_plus.yaml, which a test compares, and statistics of each task's own."""


@dataclass(frozen=True)
class Contender:
    """One way of sharing.

    Attributes:
        name: For folders and tables.
        meaning: In words, in a list of all.
        model: Class and options of the method, as `lws fit` reads them.
    """

    name: str
    meaning: str
    model: Mapping[str, Any]

    @property
    def trunk(self) -> bool:
        """Whether it stands on a pretrained network."""
        return self.name in TRUNK_CONTENDERS


def contenders_for(num_tasks: int, network: str, lr: float, trunk: Trunk | None) -> list[Contender]:
    """Returns the contenders.

    Args:
        num_tasks: T.
        network: The base network of those without a trunk.
        lr: Adam's learning rate.
        trunk: A pretrained network, None if there is none here.
    """
    own = {**_TRAINING, "network": network, "lr": lr}
    mixed = {"sgd_samples": _SGD_SAMPLES, "sampling": "systematic"}
    learned = {
        **mixed,
        "nes_batch": "training",
        "credit": "per_task",
        "weights_per_layer": min(num_tasks, _MOST_COPIES),
    }
    undirected = {**mixed, "then": "none", "weights_per_layer": num_tasks}
    fixed = "FixedSharing"
    contenders = [
        Contender("none", "separate networks", _model(fixed, own, sharing="none")),
        Contender("full", "one network for all", _model(fixed, own, sharing="full")),
        Contender("learned", "learned sharing", _model("LearnedWeightSharing", own, **learned)),
        Contender("undirected", "its control without a search", _model("UndirectedSharing", own, **undirected)),
    ]
    if trunk is not None:
        pretrained = {
            "network": trunk.network,
            "pretrained_weights": trunk.weights,
            "network_input": trunk.network_input,
        }
        beside = {"frozen_layers": ["*"], "copies": "lora", "learned_layers": trunk.adapted_layers}
        parts = {**_TRAINING, "lr": lr, **pretrained, **beside}
        contenders += [
            Contender(PROBE, "linear heads on a frozen network", _model("LinearProbe", pretrained)),
            Contender(
                "adapters",
                "small learned parts beside a frozen network",
                _model("LearnedWeightSharing", parts, **learned),
            ),
        ]
    return contenders


def _model(name: str, options: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    return {"class_path": name, "init_args": {**options, **own}}


def default_network(image_shape: Sequence[int]) -> str:
    """Returns the name of a small network for images `(C, H, W)`."""
    side = min(image_shape[1:])
    for smallest, name in ((64, "omniglot_convnet"), (12, "dkl_convnet"), (4, "digits_convnet")):
        if side >= smallest:
            return name
    return "digits_dense"


def augmentation_for(image_shape: Sequence[int], coloured: Sequence[bool]) -> list[str | dict[str, Any]]:
    """Returns the light augmentation of the training images.

    Args:
        image_shape: `(C, H, W)`.
        coloured: For each task, whether its images have colours.

    Returns:
        Small shifts, which helped more than any sharing where it was measured (docs/results.md); mirror images, too, if
        all tasks have photographs, since a mirrored letter may be another one.
    """
    sides = [int(side) for side in image_shape[1:]]
    crop = {"name": "RandomCrop", "size": sides, "padding": max(1, min(sides) // 8), "padding_mode": "edge"}
    return ["RandomHorizontalFlip", crop] if all(coloured) else [crop]


def recipe(contender: Contender, data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a contender, as `lws fit` reads it, but for the number of steps.

    Args:
        contender: The contender.
        data: Class and options of the DataModule.
    """
    checkpoint = {"save_last": "link", "every_n_epochs": 1, "save_on_train_epoch_end": False}
    best = {"filename": BEST, "monitor": "val/error_task_mean", "mode": "min", "save_on_train_epoch_end": False}
    trainer = {
        "devices": 1,
        "check_val_every_n_epoch": None,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 25,
        "callbacks": [
            # Before the other one, so that a run resumes knowing its best checkpoint.
            {"class_path": "ModelCheckpoint", "init_args": {**best, "enable_version_counter": False}},
            {
                "class_path": "ModelCheckpoint",
                "init_args": {"filename": "{step:06d}", "enable_version_counter": False, **checkpoint},
            },
            {"class_path": "SharingMonitor", "init_args": {"pictures_every_evaluation": False}},
            {"class_path": "lws_lightning.compare.outcomes.TestOutcomes"},
        ],
    }
    return {"model": dict(contender.model), "data": dict(data), "trainer": trainer}


def with_steps(config: Mapping[str, Any], steps: int, evaluations: int = EVALUATIONS) -> dict[str, Any]:
    """Returns a configuration with a number of steps, and a step size of the search that suits it.

    The search could decide a choice in a tenth of the run, if it was the only one that mattered, unless random drift
    would then decide within the run.
    """
    trainer = {**config["trainer"], "max_steps": steps, "val_check_interval": max(1, steps // evaluations)}
    options = dict(config["model"]["init_args"])
    if "nes_batch" in options:
        copies = options["weights_per_layer"]
        # Steps to a decision are in proportion to 1 / nes_lr, and shorter with systematic populations; the half-life
        # of drift is in proportion to 1 / nes_lr^2, as long as nes_lr is small.
        decision = fastest_decision(1 / copies, 0.9, _SMALL) * (1 - 1 / _SGD_SAMPLES) / (_DECIDES_IN * steps)
        drift = math.sqrt(drift_half_life(_SGD_SAMPLES, _SMALL, "systematic") / steps)
        options["nes_lr"] = float(f"{_SMALL * min(decision, drift):.2g}")
    return {**config, "trainer": trainer, "model": {**config["model"], "init_args": options}}

"""The weight update: gradients over a population and the tasks, checks, one optimizer step. Does not use Lightning."""

from lws_lightning.training.engine import Engine
from lws_lightning.training.guard import NonFiniteError
from lws_lightning.training.linear import choose_penalty, fit_linear
from lws_lightning.training.losses import task_losses
from lws_lightning.training.objective import LossWeights, Objective, normalised_weights
from lws_lightning.training.optimization import (
    LRSchedule,
    apply_schedule,
    copy_optimizer_state,
    lr_factor,
    parameter_groups,
)
from lws_lightning.training.ranks import Ranks, require_equal
from lws_lightning.training.stopping import EarlyStopping
from lws_lightning.training.update import WeightUpdate, to_inputs

__all__ = [
    "EarlyStopping",
    "Engine",
    "LRSchedule",
    "LossWeights",
    "NonFiniteError",
    "Objective",
    "Ranks",
    "WeightUpdate",
    "apply_schedule",
    "choose_penalty",
    "copy_optimizer_state",
    "fit_linear",
    "lr_factor",
    "normalised_weights",
    "parameter_groups",
    "require_equal",
    "task_losses",
    "to_inputs",
]

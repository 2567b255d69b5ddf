"""The update of the weights: gradients over a population and the tasks, checks, one step of Adam. Without Lightning."""

from lws_lightning.training.engine import Engine
from lws_lightning.training.guard import NonFiniteError
from lws_lightning.training.losses import task_losses
from lws_lightning.training.objective import LossWeights, Objective, normalised_weights
from lws_lightning.training.optimization import LRSchedule, lr_factor, obey_schedule
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
    "lr_factor",
    "normalised_weights",
    "obey_schedule",
    "require_equal",
    "task_losses",
    "to_inputs",
]

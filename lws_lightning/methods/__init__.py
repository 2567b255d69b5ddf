"""LightningModules: learned sharing and the systems that it is compared with."""

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_trainer
from lws_lightning.methods.evaluation import Evaluation, TaskEvaluation
from lws_lightning.methods.fixed import FixedSharing
from lws_lightning.methods.learned import LearnedWeightSharing
from lws_lightning.methods.optimization import NonFiniteError

__all__ = [
    "Evaluation",
    "FixedSharing",
    "LearnedWeightSharing",
    "MultiTaskMethod",
    "NonFiniteError",
    "TaskEvaluation",
    "check_trainer",
]

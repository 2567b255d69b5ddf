"""LightningModules: learned weight sharing and the methods it is compared with."""

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_trainer
from lws_lightning.methods.cross_stitch import CrossStitch
from lws_lightning.methods.early_stopping import IndependentEarlyStopping
from lws_lightning.methods.engine import trainer_of
from lws_lightning.methods.fixed import FixedScheme, FixedSharing
from lws_lightning.methods.fully_adaptive import FullyAdaptiveSharing
from lws_lightning.methods.inference import inference_costs, inference_parameters, inference_seconds
from lws_lightning.methods.learned import LearnedScheme, LearnedWeightSharing
from lws_lightning.methods.linear_probe import LinearProbe
from lws_lightning.methods.record import DataRecord
from lws_lightning.methods.restored import method_from_checkpoint
from lws_lightning.methods.routing import RoutingNetworks
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.methods.sluice import Sluice
from lws_lightning.methods.soft_layer_ordering import SoftLayerOrdering
from lws_lightning.methods.uncertainty import UncertaintyObjective, UncertaintyWeighting
from lws_lightning.methods.undirected import UndirectedSharing
from lws_lightning.records import Evaluation, TaskEvaluation
from lws_lightning.training import NonFiniteError

__all__ = [
    "Blueprint",
    "CrossStitch",
    "DataRecord",
    "Design",
    "Evaluation",
    "FixedScheme",
    "FixedSharing",
    "FullyAdaptiveSharing",
    "IndependentEarlyStopping",
    "LearnedScheme",
    "LearnedWeightSharing",
    "LinearProbe",
    "MultiTaskMethod",
    "NonFiniteError",
    "RoutingNetworks",
    "Scheme",
    "Sluice",
    "SoftLayerOrdering",
    "TaskEvaluation",
    "UncertaintyObjective",
    "UncertaintyWeighting",
    "UndirectedSharing",
    "check_trainer",
    "inference_costs",
    "inference_parameters",
    "inference_seconds",
    "method_from_checkpoint",
    "trainer_of",
]

"""What runs a population of assignments through a network of weight sets: no Lightning import."""

from lws_lightning.sharing.batch_norm import RunningStats, TaskBatchNorm
from lws_lightning.sharing.layers import CommonLayer, SharedLayer
from lws_lightning.sharing.network import MultiTaskNetwork
from lws_lightning.sharing.plan import LayerPlan, PopulationPlan, plan_population

__all__ = [
    "CommonLayer",
    "LayerPlan",
    "MultiTaskNetwork",
    "PopulationPlan",
    "RunningStats",
    "SharedLayer",
    "TaskBatchNorm",
    "plan_population",
]

"""Runs a population of assignments through a network of weight sets. Does not import Lightning."""

from lws_lightning.sharing.adapters import Copies, freeze, initialise_trained_parts_, insert_trained_parts
from lws_lightning.sharing.batch_norm import RunningStats, TaskBatchNorm
from lws_lightning.sharing.columns import ColumnNetwork
from lws_lightning.sharing.layers import CommonLayer, SharedLayer, frozen_tensors
from lws_lightning.sharing.memory import keep_freed_memory
from lws_lightning.sharing.mixing import MixingUnit
from lws_lightning.sharing.network import MultiTaskNetwork
from lws_lightning.sharing.nodes import Nodes
from lws_lightning.sharing.passes import PopulationPass, check_max_images, split_population
from lws_lightning.sharing.plan import LayerPlan, PopulationPlan, plan_population
from lws_lightning.sharing.random_layers import TaskAttention, TaskRandom, convert_random_layers, restore_random_layers
from lws_lightning.sharing.soft_order import SoftOrderNetwork
from lws_lightning.sharing.standalone import standalone_network
from lws_lightning.sharing.task_networks import TaskNetworks

__all__ = [
    "ColumnNetwork",
    "CommonLayer",
    "Copies",
    "LayerPlan",
    "MixingUnit",
    "MultiTaskNetwork",
    "Nodes",
    "PopulationPass",
    "PopulationPlan",
    "RunningStats",
    "SharedLayer",
    "SoftOrderNetwork",
    "TaskAttention",
    "TaskBatchNorm",
    "TaskNetworks",
    "TaskRandom",
    "check_max_images",
    "convert_random_layers",
    "freeze",
    "frozen_tensors",
    "initialise_trained_parts_",
    "insert_trained_parts",
    "keep_freed_memory",
    "plan_population",
    "restore_random_layers",
    "split_population",
    "standalone_network",
]

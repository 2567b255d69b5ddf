"""The mathematics of the search over assignments, on tensors alone: no networks, no Lightning."""

from lws_lightning.search.branching import difficulty_agreement
from lws_lightning.search.distribution import Sampling, SearchDistribution
from lws_lightning.search.fitness import (
    drift_half_life,
    false_alarm_probability,
    fastest_decision,
    rank_utilities,
)
from lws_lightning.search.policy import RoutingPolicy
from lws_lightning.search.price import marginal_parameters, shared_parameters
from lws_lightning.search.tree import TaskTree

__all__ = [
    "RoutingPolicy",
    "Sampling",
    "SearchDistribution",
    "TaskTree",
    "difficulty_agreement",
    "drift_half_life",
    "false_alarm_probability",
    "fastest_decision",
    "marginal_parameters",
    "rank_utilities",
    "shared_parameters",
]

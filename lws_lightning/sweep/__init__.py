"""Runs every configuration with every seed, on this machine or on a cluster: `lws sweep`."""

from lws_lightning.sweep.command import sweep
from lws_lightning.sweep.plan import SweepRun, parse_seeds

__all__ = ["SweepRun", "parse_seeds", "sweep"]

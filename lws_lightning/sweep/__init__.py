"""Runs every configuration with every seed, on this machine or on a cluster: `lws sweep`."""

from lws_lightning.sweep.command import sweep
from lws_lightning.sweep.display import Display
from lws_lightning.sweep.local import environment_of_run, run_locally, visible_gpus
from lws_lightning.sweep.outcome import Outcome
from lws_lightning.sweep.plan import CONFIG_FILE, SweepRun, parse_seeds, plan_runs, save_config

__all__ = [
    "CONFIG_FILE",
    "Display",
    "Outcome",
    "SweepRun",
    "environment_of_run",
    "parse_seeds",
    "plan_runs",
    "run_locally",
    "save_config",
    "sweep",
    "visible_gpus",
]

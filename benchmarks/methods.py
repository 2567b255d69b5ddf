"""`python -m benchmarks.methods`: what a training step of each method costs, as ratios to full sharing from one run.

Each method trains the DKL-MNIST ConvNet on images of random patterns, with Lightning, loader and callbacks as in any
run. The methods take turns in short pieces, so that ratios hold when the machine's speed drifts. Learned sharing is
timed with pi uniform, where it costs most, and settled, where it stays for most of a run.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from benchmarks.random_data import PatternTasks
from benchmarks.workloads import WORKLOADS
from lws_lightning import (
    CrossStitch,
    FixedSharing,
    IndependentEarlyStopping,
    LearnedWeightSharing,
    MultiTaskMethod,
    RoutingNetworks,
    Sluice,
    SoftLayerOrdering,
    UncertaintyWeighting,
)

WARM_UP = 3


ONE_PASS = {"nes_batch": "training", "sampling": "systematic"}


def _learned(pi: str, **search: Any) -> Callable[..., MultiTaskMethod]:
    probs = WORKLOADS["dkl_convnet"].distribution(pi).probs.tolist()
    return lambda **options: LearnedWeightSharing(nes_lr=0.0, initial_probs=probs, **search, **options)


METHODS: dict[str, Callable[..., MultiTaskMethod]] = {
    "full": lambda **options: FixedSharing("full", **options),
    "none": lambda **options: FixedSharing("none", **options),
    "learned, pi uniform": _learned("uniform"),
    "learned, pi settled": _learned("converged"),
    "one pass, pi uniform": _learned("uniform", **ONE_PASS),
    "two draws, pi uniform": _learned("uniform", sgd_samples=2, **ONE_PASS),
    "two draws, pi settled": _learned("converged", sgd_samples=2, **ONE_PASS),
    "routing": RoutingNetworks,
    "uncertainty weighting": UncertaintyWeighting,
    "early stopping": IndependentEarlyStopping,
    "soft layer ordering": SoftLayerOrdering,
    "cross-stitch": CrossStitch,
    "sluice": Sluice,
}


class Stopwatch(Callback):
    """Times training steps, loading and callbacks included.

    Attributes:
        seconds: Processor time of each step after the first few.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._before = 0.0

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Notes the time since the last step."""
        now = time.process_time()
        if trainer.global_step > WARM_UP:
            self.seconds.append(now - self._before)
        self._before = now


def step_seconds(make: Callable[..., MultiTaskMethod], steps: int) -> float:
    """Returns the median processor time of a training step, in seconds."""
    data = PatternTasks(seed=0, validation="split")
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            max_steps=WARM_UP + steps,
            max_epochs=-1,
            limit_val_batches=0,
            accelerator="cpu",
            callbacks=[watch],
            default_root_dir=folder,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            log_every_n_steps=25,
        )
        trainer.fit(make(network="dkl_convnet", seed=0, **data.task_info), datamodule=data)
    return statistics.median(watch.seconds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15, help="of each piece")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    ratios: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(options.rounds):
        seconds = {name: step_seconds(make, options.steps) for name, make in METHODS.items()}
        for name in METHODS:
            ratios[name].append(seconds[name] / seconds["full"])
    print(f"\nA training step over that of full sharing; 1 thread, {options.rounds} rounds of {options.steps} steps")
    print(f"{'method':<24}{'median':>8}{'least':>8}{'most':>8}")
    for name, values in ratios.items():
        print(f"{name:<24}{statistics.median(values):>8.2f}{min(values):>8.2f}{max(values):>8.2f}")


if __name__ == "__main__":
    main()

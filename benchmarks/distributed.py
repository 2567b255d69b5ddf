"""`python -m benchmarks.distributed`: seconds of a training step in one process and in two, as ratios of one run.

Each process has one thread. The kinds of run take turns, so that ratios hold when the machine's speed drifts. On a
machine that has other work to do, wall time says little; the processor time of one process, in which it does not wait
for the other, says how the work is divided.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from benchmarks.random_data import PatternTasks
from lws_lightning import LearnedWeightSharing

WARM_UP = 5

# name: processes, distribute, batch size of each
RUNS = {
    "one process, B": (1, "examples", 16),
    "two, tasks, B": (2, "tasks", 16),
    "two, examples, B/2 each": (2, "examples", 8),
    "two, examples, B each": (2, "examples", 16),
}


class Stopwatch(Callback):
    """Times whole training batches, loading and callbacks included."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def on_train_batch_end(self, *args: Any) -> None:
        """Notes the time."""
        self.times.append((time.perf_counter(), time.process_time()))

    @property
    def seconds(self) -> tuple[float, float]:
        """The median wall and processor time from one batch to the next."""
        steps = list(pairwise(self.times[WARM_UP:]))
        wall, processor = (statistics.median(after[i] - before[i] for before, after in steps) for i in range(2))
        return wall, processor


def train(
    rank: int, world_size: int, port: int, distribute: str, batch_size: int, tasks: int, steps: int
) -> tuple[float, float]:
    """Returns the wall and processor seconds of a step."""
    torch.set_num_threads(1)
    options: dict[str, Any] = {}
    if world_size > 1:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(world_size),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "TORCHELASTIC_RUN_ID": "benchmark",
        }
        options = {"devices": world_size, "strategy": "ddp"}
    data = PatternTasks([(10, 26, 10)[task % 3] for task in range(tasks)], batch_size=batch_size, distribute=distribute)
    module = LearnedWeightSharing(network="dkl_convnet", seed=0, **data.task_info)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator="cpu",
            max_steps=steps,
            max_epochs=-1,
            limit_val_batches=0,
            default_root_dir=folder,
            callbacks=[watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **({"devices": 1} | options),
        )
        trainer.fit(module, datamodule=data)
    return watch.seconds


def _train_and_tell(rank: int, results: Any, *args: Any) -> None:
    seconds = train(rank, *args)
    if rank == 0:
        results.put(seconds)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in RUNS}
    context = multiprocessing.get_context("spawn")
    for _ in range(options.rounds):
        seconds = {}
        for name, (world_size, distribute, batch_size) in RUNS.items():
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                port = listener.getsockname()[1]
            results = context.SimpleQueue()
            arguments = (results, world_size, port, distribute, batch_size, options.tasks, options.steps)
            processes = [context.Process(target=_train_and_tell, args=(r, *arguments)) for r in range(world_size)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            seconds[name] = results.get()
        alone = seconds["one process, B"]
        for name, value in seconds.items():
            ratios[name].append((value[0] / alone[0], value[1] / alone[1]))
    print(f"dkl_convnet, T={options.tasks}, K=3, S=8, B=16, uniform pi, float32, one thread a process")
    print(f"{options.rounds} rounds of {options.steps} steps; the last round's step in one process: ", end="")
    print(f"{1000 * seconds['one process, B'][0]:.0f} ms")
    print("step / step of one process, median (range):")
    print(f"{'run':<26}{'wall time':>22}{'processor time':>22}")
    for name, values in ratios.items():
        columns = [
            f"{statistics.median(column):.2f} ({min(column):.2f} .. {max(column):.2f})"
            for column in zip(*values, strict=True)
        ]
        print(f"{name:<26}{columns[0]:>22}{columns[1]:>22}")


if __name__ == "__main__":
    main()

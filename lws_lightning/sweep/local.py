"""Runs a sweep on this machine, some runs at a time."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lws_lightning.sweep.display import Display
from lws_lightning.sweep.outcome import LOG_FILE, Outcome, outcome_of
from lws_lightning.sweep.plan import SweepRun

__all__ = ["environment_of_run", "run_locally", "visible_gpus", "worker_command"]

Command = Callable[[SweepRun], list[str]]

_POLL_SECONDS = 0.25
_GRACE_SECONDS = 300


@dataclass
class _Worker:
    run: SweepRun
    slot: int
    process: subprocess.Popen[bytes]
    started: float


def worker_command(run: SweepRun) -> list[str]:
    """Returns the command that executes one run."""
    return [sys.executable, "-m", "lws_lightning.sweep.worker", os.fspath(run.folder)]


def visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]


def run_locally(runs: Sequence[SweepRun], jobs: int, display: Display, command: Command | None = None) -> list[Outcome]:
    """Executes runs, each in its own process.

    A run that fails does not stop the others, with one exception: once a run has failed before its first step, later
    ones of the same configuration are not started, because they would fail, too.

    Args:
        runs: The runs, in order.
        jobs: Number of runs at a time. They share the processors evenly (OMP_NUM_THREADS, unless it is set); if there
            is more than one GPU, the runs are distributed over them.
        display: Shows the progress.
        command: Returns the command that executes one run; None: `worker_command`.

    Returns:
        How each run ended.

    Raises:
        KeyboardInterrupt: On Ctrl-C or SIGTERM, after the runs have saved their state; a second Ctrl-C kills them.
    """
    waiting, slots = deque(runs), deque(range(jobs))
    workers: list[_Worker] = []
    outcomes: list[Outcome] = []
    failing: set[str] = set()
    old_handler = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or workers:
            while waiting and slots:
                run = waiting.popleft()
                if run.name in failing:
                    text = f"{run}: not started, because another seed failed before its first step"
                    outcomes.append(Outcome(run, False, text, trained=False, started=False))
                else:
                    slot, started = slots.popleft(), time.time()  # before the worker may write its record
                    workers.append(_Worker(run, slot, _start(run, slot, jobs, command or worker_command), started))
                    display.say(f"{run}: started, in {run.folder}")
            for worker in [worker for worker in workers if worker.process.poll() is not None]:
                workers.remove(worker)
                slots.append(worker.slot)
                outcome = outcome_of(worker.run, worker.started)
                outcomes.append(outcome)
                display.say(outcome.text)
                if not outcome.finished and not outcome.trained:
                    failing.add(worker.run.name)
            display.refresh([worker.run for worker in workers])
            time.sleep(_POLL_SECONDS)
    except BaseException:
        _stop(workers, display)
        raise
    finally:
        signal.signal(signal.SIGTERM, old_handler)
    return outcomes


def _start(run: SweepRun, slot: int, jobs: int, command: Command) -> subprocess.Popen[bytes]:
    environment = environment_of_run(jobs)
    gpus = visible_gpus()
    if len(gpus) > 1:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    with (run.folder / LOG_FILE).open("ab") as log:
        # In a new session, so that Ctrl-C reaches only the sweep, which passes it on once.
        return subprocess.Popen(
            command(run),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def environment_of_run(jobs: int) -> dict[str, str]:
    """Returns the environment of each of some simultaneous runs: they share the processors evenly.

    An empty OMP_NUM_THREADS counts as not set; OpenMP would give every run all processors.
    """
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, _processors() // jobs))}


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _stop(workers: Sequence[_Worker], display: Display) -> None:
    """Lets the workers save their state, and kills those that do not end."""
    if not workers:
        return
    display.say("Stopping: the runs save their state. Ctrl-C again kills them.")
    try:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _GRACE_SECONDS
        for worker in workers:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        for worker in workers:
            worker.process.kill()
    for worker in workers:
        worker.process.wait()
        display.say(outcome_of(worker.run, worker.started).text)

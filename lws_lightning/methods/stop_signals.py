"""Signals that stop a run: after a complete step, and on all processes together."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

__all__ = ["StopSignals"]

_URGENT_AFTER = 1.0
"""Seconds after which a second Ctrl-C counts; launchers forward the first one again within less."""


class StopSignals:
    """Handles SIGINT (Ctrl-C), SIGTERM, SIGUSR1 and SLURM's requeue signal between two steps of a fit.

    A signal is only recorded when it arrives. If one rank stopped alone, the others would wait for it in the next
    all-reduce, and at any other moment a checkpoint would not hold the state of a complete step. The ranks' `flags` are
    therefore summed once per step, and `raise_agreed` raises on all ranks after the same step. A second Ctrl-C stops at
    once, except within an update of the weights.

    Lightning's handlers are replaced until `restore_handlers`: they would communicate within the handler (SIGTERM with
    multiple ranks) or save in the middle of a step (SLURM's requeue signal).

    Args:
        trainer: The Trainer of the fit. Outside the main thread, which alone receives signals, nothing is watched.

    Attributes:
        agreed: The signal that all ranks have agreed to stop for, or None.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._received: int | None = signal.SIGTERM if trainer.received_sigterm else None
        self._received_at = time.monotonic()
        self.agreed: int | None = None
        self._updating = False
        self._numbers = _stop_signal_numbers()
        self._previous: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            if SLURMEnvironment.detect():
                rank_zero_info(
                    "Under SLURM a run does not requeue itself: SIGTERM and SIGUSR1 end it after a complete step, "
                    "which is saved. To resume, pass that checkpoint (--ckpt_path), or use `lws sweep`, which finds it."
                )
            self._previous = {number: signal.signal(number, self._handle) for number in self._numbers}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._received is None:
            self._received, self._received_at = number, now
            if number == signal.SIGINT and self._trainer.is_global_zero:  # not `print`, which a signal may interrupt
                os.write(2, b"\nStopping after this step. Ctrl-C again stops at once.\n")
        elif number == signal.SIGINT and now - self._received_at > _URGENT_AFTER and not self._updating:
            self.restore_handlers()
            raise KeyboardInterrupt

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Lets the enclosed update of the weights complete, whatever signal arrives."""
        self._updating = True
        try:
            yield
        finally:
            self._updating = False

    def flags(self, device: torch.device) -> Tensor:
        """Returns 1 for the signal that this process has received and 0 for the others, to be summed over ranks."""
        return torch.tensor([float(number == self._received) for number in self._numbers], device=device)

    def agree(self, flags: Sequence[float]) -> None:
        """Takes the sums of all ranks' flags."""
        self.agreed = next((n for n, count in zip(self._numbers, flags, strict=True) if count > 0), None)

    def agree_alone(self) -> None:
        """Agrees to stop without other ranks, in a run with a single process."""
        self.agreed = self._received

    def raise_agreed(self) -> None:
        """Raises the exception that ends the run, if the ranks have agreed to stop.

        Raises:
            KeyboardInterrupt: After Ctrl-C.
            SIGTERMException: After another signal; ends the process with exit status 128 + signal, as shells expect.
        """
        if self.agreed is None:
            return
        self.restore_handlers()
        if self.agreed == signal.SIGINT:
            raise KeyboardInterrupt
        raise SIGTERMException(128 + self.agreed)

    def restore_handlers(self) -> None:
        """Restores the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}


def _stop_signal_numbers() -> list[int]:
    """Returns the numbers of the signals that stop a run, Ctrl-C first.

    SIGUSR1 is left alone if the user's program handles it. Signals handled by Lightning are included, among them
    SLURM's requeue signal, which is one of its options.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    for number in sorted(signal.valid_signals() - {signal.SIGINT, signal.SIGTERM}):
        handler = signal.getsignal(number)
        unhandled = handler == signal.SIG_DFL and number == getattr(signal, "SIGUSR1", None)
        if unhandled or type(handler).__module__.startswith("lightning."):
            numbers.append(signal.Signals(number))
    return [int(number) for number in numbers]

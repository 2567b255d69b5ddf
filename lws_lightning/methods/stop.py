"""Signals that ask a run to stop, and when they are obeyed: after a complete step, by all processes together."""

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

__all__ = ["Stop"]

_URGENT_AFTER = 1.0
"""Seconds after which another Ctrl-C is a second one; a launcher passes the first on within less."""


class Stop:
    """Obeys SIGINT (Ctrl-C), SIGTERM, SIGUSR1 and SLURM's requeue signal between two steps of a fit.

    A signal is only noted when it arrives. A rank that stopped alone would leave the others waiting for its part of the
    next sum, and a checkpoint saved at any other moment would not be the state of a complete step. `flags` of all ranks
    are therefore summed once a step, and `obey` raises on all of them after the same one. A second Ctrl-C is obeyed at
    once, except within an update of the weights.

    Lightning's own handlers are replaced until `end`: they would send from within the handler (SIGTERM with several
    ranks) or save in the middle of a step (SLURM's requeue signal).

    Args:
        trainer: Whose fit is watched. Signals reach the main thread only; elsewhere nothing is watched.

    Attributes:
        agreed: The signal that all ranks obey next; None: none.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._received: int | None = signal.SIGTERM if trainer.received_sigterm else None
        self._received_at = time.monotonic()
        self.agreed: int | None = None
        self._updating = False
        self._numbers = _signals_to_stop()
        self._previous: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            if SLURMEnvironment.detect():
                rank_zero_info(
                    "Under SLURM a run does not requeue itself: SIGTERM and SIGUSR1 end it after a complete step, "
                    "which is saved. To go on, give that checkpoint (--ckpt_path), or use `lws sweep`, which finds it."
                )
            self._previous = {number: signal.signal(number, self._note) for number in self._numbers}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._received is None:
            self._received, self._received_at = number, now
            if number == signal.SIGINT and self._trainer.is_global_zero:  # not `print`, which a signal may interrupt
                os.write(2, b"\nStopping after this step. Ctrl-C again stops at once.\n")
        elif number == signal.SIGINT and now - self._received_at > _URGENT_AFTER and not self._updating:
            self.end()
            raise KeyboardInterrupt

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Lets the enclosed update of the weights be completed whatever arrives."""
        self._updating = True
        try:
            yield
        finally:
            self._updating = False

    def flags(self, device: torch.device) -> Tensor:
        """Returns a number for each signal, 1 for the one that this process has received, to be summed over ranks."""
        return torch.tensor([float(number == self._received) for number in self._numbers], device=device)

    def agree(self, flags: Sequence[float]) -> None:
        """Takes the sums of all ranks' flags."""
        self.agreed = next((n for n, count in zip(self._numbers, flags, strict=True) if count > 0), None)

    def agree_alone(self) -> None:
        """Takes this process's word, where there is no other."""
        self.agreed = self._received

    def obey(self) -> None:
        """Raises what ends the run if the ranks have agreed to stop.

        Raises:
            KeyboardInterrupt: After Ctrl-C.
            SIGTERMException: After another signal. It ends the process with the status 128 + signal, as shells expect.
        """
        if self.agreed is None:
            return
        self.end()
        if self.agreed == signal.SIGINT:
            raise KeyboardInterrupt
        raise SIGTERMException(128 + self.agreed)

    def end(self) -> None:
        """Leaves the signals to whoever had them before."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}


def _signals_to_stop() -> list[int]:
    """Returns the numbers of the signals that stop a run, Ctrl-C first.

    SIGUSR1 is left alone where the user's own program handles it. Beside SIGTERM, Lightning has a handler for SLURM's
    requeue signal, which is an option of its.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    for number in sorted(signal.valid_signals() - {signal.SIGINT, signal.SIGTERM}):
        handler = signal.getsignal(number)
        unhandled = handler == signal.SIG_DFL and number == getattr(signal, "SIGUSR1", None)
        if unhandled or type(handler).__module__.startswith("lightning."):
            numbers.append(signal.Signals(number))
    return [int(number) for number in numbers]

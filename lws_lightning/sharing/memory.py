"""Memory layout of activations and parameters, and reuse of freed memory."""

import ctypes
import sys

import torch
from torch import Tensor

__all__ = ["channels_last", "keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt parameters, from glibc's malloc.h


def channels_last(tensor: Tensor) -> Tensor:
    """Converts a 4-d tensor to channels_last, with unambiguous strides.

    With one channel, both layouts are the same in memory, and torch may take the slow path of the default one; explicit
    channels_last strides avoid this.
    """
    if tensor.dim() != 4:
        return tensor.contiguous()
    laid_out = tensor.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = laid_out.shape
    return laid_out.as_strided(laid_out.shape, (height * width * channels, 1, width * channels, channels))


def keep_freed_memory() -> bool:
    """Lets this process keep the memory of freed tensors for the next step, instead of returning it to the system.

    The C library maps large blocks anew each time, and the system zeroes every page on first touch. A training step on
    the CPU frees and allocates the same activations again and again, and may spend a quarter of its time on this.
    Afterwards the process stays as large as its largest step.

    Returns:
        Whether the C library supports this (glibc); otherwise nothing has changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    largest = 2**31 - 1  # mallopt takes an int
    return bool(mallopt(_MMAP_THRESHOLD, largest) and mallopt(_TRIM_THRESHOLD, largest))

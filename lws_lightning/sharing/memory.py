"""The layout of activations and parameters in memory, and what becomes of memory that is freed."""

import ctypes
import sys

import torch
from torch import Tensor

__all__ = ["channels_last", "keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h


def channels_last(tensor: Tensor) -> Tensor:
    """Lays a 4-d tensor out in channels_last, and says so in its strides.

    With one channel both layouts are the same in memory, and torch may take the slow path of the default one. Then the
    strides are written as those of channels_last.
    """
    if tensor.dim() != 4:
        return tensor.contiguous()
    laid_out = tensor.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = laid_out.shape
    return laid_out.as_strided(laid_out.shape, (height * width * channels, 1, width * channels, channels))


def keep_freed_memory() -> bool:
    """Lets this process keep the memory of freed tensors for the next step, instead of handing it back to the system.

    The C library maps large blocks afresh each time, and the system fills every page with zeros when it is first
    touched. A training step on the CPU frees and takes the same activations again and again, and may spend a quarter of
    its time on that. The process then stays as large as its largest step.

    Returns:
        Whether the C library is one that can be told so (glibc); otherwise nothing has changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    largest = 2**31 - 1  # mallopt takes an int
    return bool(mallopt(_MMAP_THRESHOLD, largest) and mallopt(_TRIM_THRESHOLD, largest))

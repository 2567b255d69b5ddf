"""Reads a pickle of data without executing code in it."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["load_data_pickle"]


def _encode(text: str, encoding: str) -> bytes:
    """Replaces `_codecs.encode`, which protocol 2 uses for bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoded as {encoding}")
    return text.encode(encoding)


# What pickles of NumPy arrays and bytes refer to; NumPy moved `core` to `_core` in version 2.
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],  # type: ignore[dict-item]
    ("numpy.numeric", "_frombuffer"): np.zeros(0).__reduce_ex__(5)[0],  # type: ignore[dict-item]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytes"): bytes,
    ("builtins", "bytearray"): bytearray,
}


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        home = module.replace("numpy._core", "numpy").replace("numpy.core", "numpy").replace("__builtin__", "builtins")
        if (home, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not data")
        return _ALLOWED[home, name]


def load_data_pickle(path: Path) -> Any:
    """Loads numbers, text, bytes, containers and NumPy arrays, also from Python 2 (text as latin-1).

    Raises:
        ValueError: The file is not a complete pickle, or contains anything else.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        try:
            return _DataUnpickler(file, encoding="latin1").load()
        except OSError:
            raise
        except Exception as error:  # damaged bytes raise exceptions of any kind
            raise ValueError(f"{type(error).__name__}: {error}") from error

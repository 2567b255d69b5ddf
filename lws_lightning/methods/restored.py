"""Loads a method from a checkpoint alone: no configuration, no data, and only this package's code."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.resume import refuse_import_path

__all__ = ["method_from_checkpoint"]

_OWN_PACKAGE = __name__.rpartition(".")[0]


def method_from_checkpoint(path: str | Path, trust_network: bool = False) -> MultiTaskMethod:
    """Loads a method from a checkpoint, on the CPU and in eval mode.

    Args:
        path: The file.
        trust_network: Whether to import code that the checkpoint names: a network's import path, or a method from
            outside this package.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a checkpoint of this package, or names untrusted code.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"There is no checkpoint {file}.")
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle and zipfile raise many types
        lines = str(error).strip().splitlines()
        raise ValueError(f"{file} cannot be read as a checkpoint: {lines[0] if lines else error!r}") from error
    if not isinstance(checkpoint, Mapping) or "lws_method" not in checkpoint:
        raise ValueError(f"{file} is not a checkpoint of a method of lws_lightning.")
    if not trust_network:
        refuse_import_path(checkpoint)
    method_class = _method_class(checkpoint, file, trust_network)
    options = {**checkpoint["hyper_parameters"]}
    options.pop("pretrained_weights", None)  # the checkpoint has the weights, and their source may be gone
    try:
        method = method_class(**options)
        method.on_load_checkpoint(dict(checkpoint))
        method.load_state_dict(checkpoint["state_dict"])
    except TypeError as error:
        remedy = ""
        if "network" not in options:
            remedy = (
                " It was trained from Python with a network given as a function, which checkpoints do not contain: "
                f"load it with {method_class.__name__}.load_from_checkpoint(FILE, network=FUNCTION)."
            )
        raise ValueError(f"{file} does not fit {method_class.__name__}: {error}.{remedy}") from error
    except RuntimeError as error:
        raise ValueError(f"The weights in {file} do not fit {method_class.__name__}: {error}") from error
    return method.eval()


def _method_class(checkpoint: Mapping[str, Any], file: Path, trusted: bool) -> type[MultiTaskMethod]:
    path = str(checkpoint["lws_method"])
    module, _, name = path.rpartition(".")
    package = importlib.import_module(_OWN_PACKAGE)
    if module.split(".")[:2] == _OWN_PACKAGE.split("."):
        method_class = getattr(package, name, None) if name in package.__all__ else None
    elif trusted:
        method_class = getattr(importlib.import_module(module), name, None)
    else:
        raise ValueError(
            f"{file} was trained by a method outside this package, {path}. If you trust it, allow it to be imported "
            "(--trust_network; trust_network=True)."
        )
    if not (isinstance(method_class, type) and issubclass(method_class, MultiTaskMethod)):
        raise ValueError(f"{file} names {path!r} as its method, which is not a subclass of MultiTaskMethod.")
    return method_class

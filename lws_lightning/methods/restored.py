"""A method from a checkpoint alone: no configuration, no data, and no code but this package's."""

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
    """Makes a method from a checkpoint, on the CPU and in eval mode.

    Args:
        path: The file.
        trust_network: Whether code that the checkpoint names may be imported: a network's import path, or a method that
            is not of this package.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no checkpoint of a method of this package, or names code that is not trusted.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"There is no checkpoint {file}.")
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle and zipfile raise what the bytes lead to
        first = str(error).strip().splitlines()
        raise ValueError(f"{file} cannot be read as a checkpoint: {first[0] if first else error!r}") from error
    if not isinstance(checkpoint, Mapping) or "lws_method" not in checkpoint:
        raise ValueError(f"{file} is not a checkpoint of a method of lws_lightning.")
    if not trust_network:
        refuse_import_path(checkpoint)
    kind = _method_class(checkpoint, file, trust_network)
    options = {**checkpoint["hyper_parameters"]}
    options.pop("pretrained_weights", None)  # the checkpoint has weights; where they came from may be gone
    try:
        made = kind(**options)
        made.on_load_checkpoint(dict(checkpoint))
        made.load_state_dict(checkpoint["state_dict"])
    except TypeError as error:
        remedy = ""
        if "network" not in options:
            remedy = (
                " It was trained from Python with a network that is a function, which no checkpoint holds: load it "
                f"with {kind.__name__}.load_from_checkpoint(FILE, network=FUNCTION)."
            )
        raise ValueError(f"{file} does not fit {kind.__name__}: {error}.{remedy}") from error
    except RuntimeError as error:
        raise ValueError(f"The weights in {file} do not fit {kind.__name__}: {error}") from error
    return made.eval()


def _method_class(checkpoint: Mapping[str, Any], file: Path, trusted: bool) -> type[MultiTaskMethod]:
    path = str(checkpoint["lws_method"])
    module, _, name = path.rpartition(".")
    package = importlib.import_module(_OWN_PACKAGE)
    if module.split(".")[:2] == _OWN_PACKAGE.split("."):
        kind = getattr(package, name, None) if name in package.__all__ else None
    elif trusted:
        kind = getattr(importlib.import_module(module), name, None)
    else:
        raise ValueError(
            f"{file} was trained by a method of other code, {path}. If you trust it, allow it to be imported "
            "(--trust_network; trust_network=True)."
        )
    if not (isinstance(kind, type) and issubclass(kind, MultiTaskMethod)):
        raise ValueError(f"{file} names {path!r} as its method, which is not a class derived from MultiTaskMethod.")
    return kind

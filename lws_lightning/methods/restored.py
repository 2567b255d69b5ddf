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


def method_from_checkpoint(path: str | Path, trust_network: bool = False, method: str | None = None) -> MultiTaskMethod:
    """Makes a method from a checkpoint, on the CPU and in eval mode.

    Args:
        path: The file.
        trust_network: Whether code that the checkpoint names may be imported: a network's import path, or a method that
            is not of this package.
        method: The method's class by name, for checkpoints that do not say it.

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
    if not isinstance(checkpoint, Mapping) or "state_dict" not in checkpoint or "hyper_parameters" not in checkpoint:
        raise ValueError(f"{file} is no checkpoint of a method of lws_lightning.")
    if not trust_network:
        refuse_import_path(checkpoint)
    kind = _method_class(checkpoint, file, trust_network, method)
    # What begins with an underscore is Lightning's own. The checkpoint has weights; where they came from may be gone.
    options = {key: value for key, value in checkpoint["hyper_parameters"].items() if not key.startswith("_")}
    options.pop("pretrained_weights", None)
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


def _method_class(checkpoint: Mapping[str, Any], file: Path, trusted: bool, given: str | None) -> type[MultiTaskMethod]:
    hparams = checkpoint["hyper_parameters"]
    path = given or checkpoint.get("lws_method") or hparams.get("_class_path") or ""
    module, _, name = str(path).rpartition(".")
    package = importlib.import_module(_OWN_PACKAGE)
    if module in ("", "lws_lightning") or module.split(".")[0:2] == _OWN_PACKAGE.split("."):
        kind = getattr(package, name, None) if name in package.__all__ else None
    elif trusted:
        kind = getattr(importlib.import_module(module), name, None)
    else:
        raise ValueError(
            f"{file} was trained by a method of other code, {path}. If you trust it, allow it to be imported "
            "(--trust_network; trust_network=True)."
        )
    if not (isinstance(kind, type) and issubclass(kind, MultiTaskMethod) and kind is not MultiTaskMethod):
        known = ", ".join(sorted(n for n in package.__all__ if _is_method(getattr(package, n))))
        said = f"names {path!r}" if path else "does not say"
        raise ValueError(f"{file} {said} which method it is of. Say it (--method NAME); there are: {known}.")
    return kind


def _is_method(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, MultiTaskMethod) and value is not MultiTaskMethod

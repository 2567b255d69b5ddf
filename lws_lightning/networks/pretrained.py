"""Pretrained weights: torchvision's by name, or from a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

__all__ = ["load_pretrained", "published_weights"]

_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


def load_pretrained(model: nn.Module, value: str, torchvision_name: str | None, what: str) -> None:
    """Loads weights into a classifier, except for its last linear module if the shapes differ.

    Args:
        model: Changed in place.
        value: A file with a state dict (`.pt`, `.pth`, `.safetensors`), or the name of torchvision's weights for this
            model, for example `IMAGENET1K_V1` or `DEFAULT`.
        torchvision_name: torchvision's name of the model; None for other models.
        what: How messages refer to the model.

    Raises:
        ValueError: If there is no such file or name, the file cannot be read or downloaded, or the weights do not fit.
    """
    if Path(value).suffix in _SUFFIXES or "/" in value or Path(value).is_file():
        state, source = _read_file(Path(value).expanduser()), value
    elif torchvision_name is None:
        raise ValueError(
            f"pretrained_weights: {value!r} is not a file; only torchvision's networks have weights by name, and "
            "timm's those named DEFAULT."
        )
    else:
        state, source = _download(torchvision_name, value), f"{value} of {torchvision_name}"
    _load(model, state, source, what)


def published_weights(torchvision_name: str, value: str) -> Any:
    """Returns the entry of a model's enum of weights.

    Raises:
        ValueError: If there is no such entry; the message lists the entries.
    """
    known = torchvision.models.get_model_weights(torchvision_name)
    if value not in known.__members__:
        raise ValueError(
            f"pretrained_weights: {torchvision_name} has no weights named {value!r}. There are "
            f"{sorted({*known.__members__, 'DEFAULT'})}; or give a file with a state dict ({', '.join(_SUFFIXES)})."
        )
    return known[value]


def _download(torchvision_name: str, value: str) -> Mapping[str, Tensor]:
    url = published_weights(torchvision_name, value).url
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    try:
        state = torch.hub.load_state_dict_from_url(
            url, str(folder), map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # from the network, the disk or a damaged file
        raise ValueError(
            f"pretrained_weights: {value} of {torchvision_name} cannot be downloaded from {url}: {error}. Without a "
            f"network, put that file at {folder / url.rsplit('/', 1)[-1]}, or give your own file."
        ) from error
    return state


def _read_file(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"pretrained_weights: there is no file {path}.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError as error:
        raise ValueError(f"pretrained_weights: reading {path} needs safetensors: pip install safetensors") from error
    except Exception as error:  # torch and safetensors raise many types for a damaged file
        raise ValueError(
            f"pretrained_weights: {path} is not a state dict that can be loaded safely: {error}. Save "
            "model.state_dict() with torch.save."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"pretrained_weights: {path} contains no state dict. Save model.state_dict() with torch.save.")
    return state


def _load(model: nn.Module, state: Mapping[str, Tensor], source: str, what: str) -> None:
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    current = model.state_dict()
    head = {f"{linear[-1]}.{part}" for part in ("weight", "bias")} if linear else set()
    given = {name: tensor for name, tensor in state.items() if name not in head or _fits(name, tensor, current)}
    try:
        result = model.load_state_dict(given, strict=False)
    except RuntimeError as error:  # shapes
        raise ValueError(f"pretrained_weights: {source} does not fit {what}: {error}") from error
    missing = [name for name in result.missing_keys if name not in head and not name.endswith("num_batches_tracked")]
    if missing or result.unexpected_keys:
        raise ValueError(
            f"pretrained_weights: {source} does not fit {what}: {len(missing)} of its weights are missing "
            f"{_some(missing)} and {len(result.unexpected_keys)} are unknown {_some(result.unexpected_keys)}."
        )


def _fits(name: str, tensor: Tensor, current: Mapping[str, Tensor]) -> bool:
    return name in current and current[name].shape == tensor.shape


def _some(names: list[str]) -> str:
    return f"({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""

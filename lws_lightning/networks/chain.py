"""Cuts somebody's classifier into a chain of layers.

A layer begins at each module that has weights and is no normalisation or activation; what follows up to the next one
(normalisation, activation, pooling, flattening, dropout, reshaping) belongs to it. The last linear module is left out:
each task gets one of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

__all__ = [
    "REMEDY",
    "Chain",
    "CutError",
    "as_block",
    "begins_layer",
    "chain_of",
    "common_weights",
    "cut_sequential",
    "no_linear_at_end",
    "try_images",
]

REMEDY = "Write a function that returns a lws_lightning.networks.BaseNetwork instead: see docs/own_network.md."

_FOLLOWERS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.PReLU)
"""Modules with weights that do not begin a layer (`_NormBase`: batch and instance normalisation)."""


class CutError(ValueError):
    """A model is not a chain of layers with a linear module at its end; the message says why and what to do."""


@dataclass(frozen=True)
class Chain:
    """A classifier as a chain.

    Attributes:
        names: Of the layers: what the model calls the module that each begins with.
        blocks: The layers, from the image to features `(N, F)`.
        head: The model's own last module, from the features to logits.
    """

    names: list[str]
    blocks: list[nn.Module]
    head: nn.Linear


def begins_layer(module: nn.Module) -> bool:
    """Says whether a layer begins at a module."""
    return not isinstance(module, _FOLLOWERS) and next(module.parameters(), None) is not None


def cut_sequential(model: nn.Sequential, what: str) -> Chain:
    """Cuts an `nn.Sequential`: its children become layers, whole; of the last, if it is a Sequential, its children.

    Args:
        model: The classifier.
        what: What to call it in messages.

    Raises:
        CutError: If it is no such chain.
    """
    parts = _named_parts(model)
    while parts and type(last := parts[-1][1]) is nn.Sequential:
        name, _ = parts.pop()
        parts += [(f"{name}.{inner}", child) for inner, child in _named_parts(last)]
    if not parts or not isinstance(parts[-1][1], nn.Linear):
        raise no_linear_at_end(what, type(parts[-1][1]).__name__ if parts else "nothing")
    head = parts.pop()[1]
    assert isinstance(head, nn.Linear)
    groups: list[list[nn.Module]] = [[]]
    names: list[str] = []
    for name, child in parts:
        if begins_layer(child):
            if names:
                groups.append([])
            names.append(name)
        groups[-1].append(child)
    return chain_of(names, [as_block(group) for group in groups], head, what)


def _named_parts(model: nn.Sequential) -> list[tuple[str, nn.Module]]:
    """Returns what a Sequential runs; a module may stand in several places, of which `named_children` names one."""
    return list(zip(model._modules, model, strict=True))


def chain_of(names: Sequence[str], blocks: Sequence[nn.Module], head: nn.Linear, what: str) -> Chain:
    """Makes a chain of parts that do not share weights.

    Raises:
        CutError: If there is no layer with weights, or if a weight is in two of the parts, which copies of the layers
            would untie.
    """
    if not names:
        raise CutError(f"{what} has no layer with weights besides its last nn.Linear. {REMEDY}")
    twice = common_weights([*names, "the last nn.Linear"], [*blocks, head])
    if twice is not None:
        raise CutError(
            f"{what} uses the same weights in {twice[0]} and in {twice[1]}, and is no chain of layers that can be "
            f"exchanged one by one. {REMEDY}"
        )
    return Chain(list(names), list(blocks), head)


def common_weights(names: Sequence[str], blocks: Sequence[nn.Module]) -> tuple[str, str] | None:
    """Returns the names of two blocks that use the same weights, or None."""
    place_of: dict[nn.Parameter, int] = {}
    for place, block in enumerate(blocks):
        for parameter in block.parameters():
            if (first := place_of.setdefault(parameter, place)) != place:
                return names[first], names[place]
    return None


def as_block(parts: Sequence[nn.Module]) -> nn.Module:
    """Makes one module of consecutive ones; a subclass of `nn.Sequential` that computes nothing else becomes plain."""
    if len(parts) > 1:
        return nn.Sequential(*(part for each in parts for part in _unpacked(each)))
    plain = _unpacked(parts[0])
    return plain[0] if len(plain) == 1 else nn.Sequential(*plain)


def _unpacked(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return [part for child in module for part in _unpacked(child)]
    return [module]


def no_linear_at_end(what: str, last: str) -> CutError:
    """Makes the error for a model whose logits do not come from `nn.Linear`."""
    return CutError(
        f"{what} does not end with nn.Linear but with {last}, so it is not clear what each task's own head would be. "
        f"Let it end with nn.Linear (the number of outputs does not matter), or: {REMEDY}"
    )


def try_images(model: nn.Module, image_shape: Sequence[int], what: str) -> None:
    """Runs a model once, which also gives lazy modules their shapes.

    Raises:
        ValueError: If it cannot take images of shape `(C, H, W)`.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *image_shape))
    except (RuntimeError, ValueError, AssertionError, TypeError, IndexError) as error:
        raise ValueError(f"{what} cannot take images of shape {tuple(image_shape)}: {error}") from error
    for module, mode in modes:
        module.training = mode

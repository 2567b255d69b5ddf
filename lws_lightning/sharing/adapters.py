"""Copies of a layer that are small parts within or beside one frozen block.

A block is frozen, and trained parts are put into it; the copies of a layer then have trained parts of their own and all
else in common (see `SharedLayer`). So a plan, a pass or an export sees ordinary blocks.

Copies that compute the same would give the search nothing to choose from, and pretrained weights should be the start of
all of them. Trained parts are therefore initialised so that they change the block by about one percent, each copy
differently.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lws_lightning.sharing.replacing import replace_modules

__all__ = ["Copies", "freeze", "initialise_trained_parts_", "insert_trained_parts", "merge"]

Copies = Literal["weights", "adapter", "lora", "norm"]
"""What the copies of a layer are: whole blocks, or parts of one frozen block (see `insert_trained_parts`)."""

_NOISE = 0.01
"""Size of the random part of initial copies relative to the pretrained weights."""

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


class LowRank(nn.Module):
    """Adds a matrix of low rank to a weight (Hu et al.: LoRA, ICLR 2022), as a parametrization of it.

    Args:
        weight: `(out, in, ...)`, the weight; only its shape and its root mean square are used.
        rank: r.

    Attributes:
        down: `(r, in * ...)`.
        up: `(out, r)`.
    """

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = len(weight), weight[0].numel()
        self.down = nn.Parameter(weight.new_zeros(min(rank, rows, columns), columns))
        self.up = nn.Parameter(weight.new_zeros(rows, len(self.down)))
        self.scale = float(weight.detach().square().mean().sqrt())

    def forward(self, weight: Tensor) -> Tensor:
        """Returns `weight + up @ down`, in the shape of `weight`."""
        return weight + (self.up @ self.down).view_as(weight)

    def initialise_(self, generator: torch.Generator) -> None:
        """Draws factors whose product has a hundredth of the weight's root mean square."""
        rank, columns = self.down.shape
        _normal_(self.down, 1 / math.sqrt(columns), generator)
        _normal_(self.up, _NOISE * self.scale * math.sqrt(columns / rank), generator)


class AdaptedConvolution(nn.Module):
    """A frozen convolution with a residual adapter beside it: 1x1 convolution to `rank` channels, ReLU, and back.

    Parallel adapters as such are those of Rebuffi et al. (CVPR 2018); the narrow middle is that of Houlsby et al. (ICML
    2019). Where the convolution changes the size of the image, the adapter sees the averages of its input.

    Args:
        convolution: The convolution.
        rank: Channels in the middle.
    """

    def __init__(self, convolution: nn.Conv2d, rank: int) -> None:
        super().__init__()
        weight = convolution.weight
        options = {"kernel_size": 1, "bias": False, "dtype": weight.dtype}
        self.convolution = convolution
        self.down = nn.Conv2d(convolution.in_channels, rank, **options)  # type: ignore[arg-type]
        self.up = nn.Conv2d(rank, convolution.out_channels, **options)  # type: ignore[arg-type]
        # The variance of the convolution's outputs for inputs of variance 1, so that the adapter adds 1 % to them.
        self.scale = float(weight.detach().square().flatten(1).sum(1).mean().sqrt())

    def forward(self, images: Tensor) -> Tensor:
        """Maps `(N, in, H, W)` to `(N, out, H', W')`."""
        outputs: Tensor = self.convolution(images)
        if images.shape[-2:] != outputs.shape[-2:]:
            images = nn.functional.adaptive_avg_pool2d(images, (outputs.shape[-2], outputs.shape[-1]))
        return outputs + self.up(nn.functional.relu(self.down(images)))  # type: ignore[no-any-return]

    def initialise_(self, generator: torch.Generator) -> None:
        """Draws weights with which the adapter adds about a hundredth of the convolution's outputs."""
        _normal_(self.down.weight, 1 / math.sqrt(self.down.in_channels), generator)
        _normal_(self.up.weight, _NOISE * self.scale / math.sqrt(self.up.in_channels), generator)


def freeze(block: nn.Module) -> nn.Module:
    """Puts a block in eval mode, without gradients, in place."""
    return block.eval().requires_grad_(False)


def insert_trained_parts(block: nn.Module, copies: Copies, rank: int, what: str) -> nn.Module:
    """Freezes a block and puts the parts into it that each of its copies trains.

    - `adapter`: a residual adapter beside each convolution with a kernel of more than one pixel; beside all of them in
      a block that has no such convolution.
    - `lora`: factors of rank `rank` that are added to the weights of linear modules, attention and convolutions
      without groups.
    - `norm`: the scale and shift of each normalisation; the statistics of batch normalisation stay the pretrained ones.

    Args:
        block: Changed in place, unless it is itself replaced.
        copies: Not `weights`.
        rank: r, at least 1.
        what: How messages refer to the block.

    Returns:
        The block in eval mode; only the trained parts require gradients.

    Raises:
        ValueError: If the block has no module of that kind.
    """
    freeze(block)
    if copies == "adapter":
        convolutions = [part for part in block.modules() if isinstance(part, nn.Conv2d)]
        wide = [part for part in convolutions if math.prod(part.kernel_size) > 1] or convolutions
        chosen = set(wide)
        block = replace_modules(block, lambda part, _: _adapted(part, rank) if part in chosen else part)
    elif copies == "lora":
        for part in list(block.modules()):
            for name in _matrices(part):
                parametrize.register_parametrization(part, name, LowRank(getattr(part, name), rank))
    else:
        for part in block.modules():
            if isinstance(part, _NORMS):
                part.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in block.parameters()):
        needs = {"adapter": "convolution", "lora": "linear module, attention or convolution", "norm": "normalisation"}
        raise ValueError(
            f"copies: {copies} needs a {needs[copies]} in every learned layer, but {what} has none. Leave it out of "
            "learned_layers, or choose other copies."
        )
    return block


def _adapted(part: nn.Module, rank: int) -> nn.Module:
    assert isinstance(part, nn.Conv2d)
    return AdaptedConvolution(part, rank).eval()


def _matrices(part: nn.Module) -> list[str]:
    """Returns the names of the weights of a module that get low-rank factors."""
    if isinstance(part, nn.MultiheadAttention):
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return [name for name in names if getattr(part, name) is not None]
    if isinstance(part, nn.Linear) or (isinstance(part, nn.Conv2d) and part.groups == 1):
        return ["weight"]
    return []


@torch.no_grad()
def initialise_trained_parts_(block: nn.Module, generator: torch.Generator) -> None:
    """Draws initial values of the parts that `insert_trained_parts` has put into a block.

    Args:
        block: Changed in place.
        generator: CPU generator.
    """
    for part in block.modules():
        if isinstance(part, LowRank | AdaptedConvolution):
            part.initialise_(generator)
        elif isinstance(part, _NORMS) and part.weight is not None and part.weight.requires_grad:
            size = _NOISE * float(part.weight.square().mean().sqrt())
            for values in part.parameters(recurse=False):
                noise = torch.randn(values.shape, generator=generator, dtype=values.dtype)
                values.add_(size * noise)


def _normal_(values: Tensor, deviation: float, generator: torch.Generator) -> None:
    values.copy_(torch.randn(values.shape, generator=generator, dtype=values.dtype) * deviation)


def merge(module: nn.Module) -> nn.Module:
    """Replaces weights with low-rank factors by their sums; other trained parts are ordinary modules.

    Args:
        module: Changed in place, unless it is itself replaced.
    """
    return replace_modules(module, lambda part, _: _merged(part) if parametrize.is_parametrized(part) else part)


def _merged(part: nn.Module) -> nn.Module:
    """Returns a module of the class before `register_parametrization`.

    Not `remove_parametrizations`, which changes the class, and with it all other copies.
    """
    names = list(part.parametrizations)  # type: ignore[arg-type]
    sums = {name: nn.Parameter(getattr(part, name).detach()) for name in names}
    cls: Any = type(part).__bases__[0]
    merged: nn.Module = cls.__new__(cls)
    vars(merged).update(vars(part))
    children = {name: child for name, child in part._modules.items() if name != "parametrizations"}
    merged._modules = {name: None if child is None else merge(child) for name, child in children.items()}
    merged._parameters = {**sums, **part._parameters}
    return merged

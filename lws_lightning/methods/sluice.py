"""Sluice networks: cross-stitch of subspaces, orthogonality between them, skip connections."""

from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_fraction
from lws_lightning.methods.cross_stitch import stitch_matrix
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.networks import output_shapes
from lws_lightning.sharing import ColumnNetwork, CommonLayer, MixingUnit, SharedLayer

__all__ = ["Sluice", "SluiceScheme"]


class SluiceScheme(Scheme):
    """T columns whose subspaces are mixed after each learned layer, and skip weights beta; see `Sluice`."""

    network: ColumnNetwork

    def __init__(
        self, blueprint: Blueprint, subspaces: int, same_subspace: float, last_layer: float, penalty: float
    ) -> None:
        if subspaces < 2:
            raise ValueError(f"subspaces must be at least 2, but is {subspaces}; with one, use CrossStitch.")
        check_fraction("same_subspace", same_subspace)
        check_fraction("last_layer", last_layer)
        if not penalty >= 0:
            raise ValueError(f"penalty must not be negative, but is {penalty}.")
        names, tasks = blueprint.layer_names, blueprint.num_tasks
        all_shapes = output_shapes(blueprint.base, blueprint.image_shape)
        shapes = [all_shapes[name] for name in names]
        for name, shape in zip(names, shapes, strict=True):
            if shape[0] % subspaces:
                raise ValueError(
                    f"subspaces is {subspaces}, but layer {name!r} has {shape[0]} channels, which do not divide "
                    "into subspaces of equal size. Choose another model.subspaces or another network."
                )
        channels = [shape[0] for shape in shapes]
        units = [MixingUnit(tasks, stitch_matrix(tasks * subspaces, same_subspace)) for _ in shapes]
        layers, heads = blueprint.layers_and_heads([tasks] * len(units))
        if penalty > 0:
            for layer, name, size in zip(_learned(layers), names, channels, strict=True):
                _output_weight(layer.copies[0], size, name)  # refuses before training
        skip = [index for index, shape in enumerate(shapes) if shape == shapes[-1]]
        if len(skip) == 1:
            network = ColumnNetwork(layers, heads, units)
        else:
            beta = torch.full((tasks, len(skip)), (1 - last_layer) / (len(skip) - 1))
            beta[:, -1] = last_layer
            network = ColumnNetwork(layers, heads, units, skip, beta)
        super().__init__(network)
        self._layer_names, self._channels = names, channels
        self._subspaces, self._penalty_weight = subspaces, penalty

    def begin(self, steps: float) -> list[str]:
        """Reports which layers beta mixes."""
        names = self._mixed_by_beta()
        if not names:
            return ["Sluice network: no other layer's output has the shape of the last one's, so beta is left out."]
        return [f"Sluice network: beta mixes the outputs of {', '.join(names)}."]

    def penalty(self) -> Tensor | None:
        """Returns the weighted orthogonality penalty, a scalar; None if its weight is 0."""
        if self._penalty_weight == 0:
            return None
        layers = zip(_learned(self.network.chain), self._channels, self._layer_names, strict=True)
        penalties = [_orthogonality(layer, channels, self._subspaces, name) for layer, channels, name in layers]
        return self._penalty_weight * torch.stack(penalties).sum() / len(self.network.heads)

    def details(self) -> dict[str, Any]:
        """Returns `alpha` for each layer, `beta_layers`, and `beta`, `(T, layers)` or None if it is left out."""
        alphas = [unit.weight.detach().float().tolist() for unit in self.network.mixing_units]
        beta = self.network.skip_weights
        return {
            "alpha": dict(zip(self._layer_names, alphas, strict=True)),
            "beta_layers": self._mixed_by_beta(),
            "beta": None if beta is None else beta.detach().float().tolist(),
        }

    def _mixed_by_beta(self) -> list[str]:
        return [self._layer_names[index] for index in self.network.skip or ()]


class Sluice(MultiTaskMethod):
    """Sluice networks (Ruder, Bingel, Augenstein & Sogaard 2017, arXiv 1705.08142).

    Every task has a column, as in `CrossStitch`, whose layers are split into subspaces. After each
    learned layer, the matrix alpha mixes all subspaces of all columns (section "Learning matrices alpha"). For each
    task, the weights beta mix the outputs of several layers before its head (section "Learning beta"). A penalty keeps
    the subspaces of a layer orthogonal (section "Orthogonality").

    Variant:

    - The paper's layers are recurrent. Here a subspace is a block of consecutive channels (or units) of a layer's
      output, all of the same size.
    - The penalty is, for each pair of subspaces of a layer of a column, the squared Frobenius norm of G_1^T G_2, where
      the columns of G_i are the weights of the outputs in subspace i. It is summed over layers and averaged over tasks,
      like the loss. The weights are those of the block's largest convolution or linear layer with as many outputs as
      the block has channels (the last one if tied). Biases and normalisation do not count.
    - In the paper, beta mixes layers of equal size. In a convolutional chain it mixes only those learned layers whose
      outputs have the shape of the last one's. If that is the last one alone, beta is left out, as stated in a message
      at the start and in the record's `details`. Beta mixes outputs after alpha.
    - alpha and beta start with a bias towards a column's own subspace and towards the last layer, as in the paper,
      which gives no numbers: `same_subspace` and `last_layer`. Both are trained without constraints, at the learning
      rate of the weights.
    - Each task has its own images, at the cost described in `CrossStitch`. Layers that the base network calls common
      stay common, without subspaces.

    Args:
        subspaces: S, the subspaces of every learned layer of a column; at least 2 (with 1, use `CrossStitch`).
        same_subspace: The initial alpha of a subspace with itself, in [0, 1]; the others share the rest equally.
        last_layer: The initial beta of the last layer, in [0, 1]; the others share the rest equally.
        penalty: The weight of the orthogonality penalty, not negative. The paper's is not known; chosen here.
        **options: See `MultiTaskMethod`. `max_images_per_pass` counts an image of a task T times.

    Raises:
        ValueError: If an option is out of range, or a layer's channels do not divide into equal subspaces.
    """

    state_options = MultiTaskMethod.state_options | {"subspaces"}
    start_options = MultiTaskMethod.start_options | {"same_subspace", "last_layer"}

    def __init__(
        self,
        subspaces: int = 2,
        same_subspace: float = 0.9,
        last_layer: float = 0.9,
        penalty: float = 1e-2,
        **options: Any,
    ) -> None:
        design = Design(
            "sluice", lambda blueprint: SluiceScheme(blueprint, subspaces, same_subspace, last_layer, penalty)
        )
        super().__init__(design, **options)


def _learned(layers: list[SharedLayer]) -> list[SharedLayer]:
    return [layer for layer in layers if not isinstance(layer, CommonLayer)]


def _output_weight(block: nn.Module, channels: int, name: str) -> Tensor:
    """Returns the weight `(C, ...)` whose first dimension is the block's output channels."""
    weights = [
        module.weight
        for module in block.modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and len(module.weight) == channels
    ]
    if not weights:
        raise ValueError(
            f"penalty cannot be computed: layer {name!r} has no convolution or linear layer with {channels} outputs. "
            "Set model.penalty: 0."
        )
    largest = max(weight.numel() for weight in weights)
    return [weight for weight in weights if weight.numel() == largest][-1]


def _orthogonality(layer: SharedLayer, channels: int, subspaces: int, name: str) -> Tensor:
    """Sums the squared inner products between weights of different subspaces, over all columns; a scalar."""
    weights = torch.stack([_output_weight(block, channels, name).flatten(1) for block in layer.copies])
    products = weights @ weights.mT  # (T, C, C)
    subspace = torch.arange(channels, device=products.device) // (channels // subspaces)
    across = subspace[:, None] < subspace
    return products.square().mul(across).sum()

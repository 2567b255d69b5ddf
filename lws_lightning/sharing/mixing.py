"""Units that mix the activations of columns with a trainable matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["MixingUnit"]


class MixingUnit(nn.Module):
    """A linear mixture of columns, the same at every position of an image (Misra et al. 2016, equation 1).

    The C channels of each of T columns are split into S contiguous subspaces of equal size. Subspace i of column t
    becomes the sum, over all subspaces j of all columns s, of `weight[t * S + i, s * S + j]` times subspace j of column
    s.

    Args:
        num_columns: T.
        weight: The initial value of the trainable matrix: `(T * S, T * S)`, or `(C, T, T)` for one matrix per channel.
    """

    def __init__(self, num_columns: int, weight: Tensor) -> None:
        super().__init__()
        self.num_columns = num_columns
        self.weight = nn.Parameter(weight.clone())

    @property
    def per_channel(self) -> bool:
        """Whether every channel has its own matrix."""
        return self.weight.dim() == 3

    @property
    def num_subspaces(self) -> int:
        """S."""
        return 1 if self.per_channel else len(self.weight) // self.num_columns

    def forward(self, activations: Tensor) -> Tensor:
        """Mixes every column's activations.

        Args:
            activations: `(T * n, C, ...)` floating point, column by column.

        Returns:
            The same shape.
        """
        rows = self._rows(activations)  # (T, R, C)
        if self.per_channel:
            mixed = torch.einsum("cts,src->trc", self.weight, rows)
        else:
            split = rows.reshape(*rows.shape[:2], self.num_subspaces, -1)
            mixed = torch.einsum("tisj,srjc->tric", self._blocks(), split).flatten(2)
        return _images(mixed.flatten(0, 1), activations)

    def own_columns(self, activations: Tensor, tasks: Sequence[int]) -> Tensor:
        """Computes only each task's own column for its images.

        Args:
            activations: `(T * T' * B, C, ...)`, column by column, each with the batches of T' tasks.
            tasks: The T' tasks, in `[0, T)`.

        Returns:
            `(T' * B, C, ...)`, the output of `forward` for column t and the images of task t.
        """
        rows = self._rows(activations)
        rows = rows.reshape(len(rows), len(tasks), -1, rows.shape[-1])  # (T, T', R, C)
        index = torch.tensor(tasks, device=self.weight.device)
        if self.per_channel:
            mixed = torch.einsum("cts,strc->trc", self.weight[:, index], rows)
        else:
            split = rows.reshape(*rows.shape[:3], self.num_subspaces, -1)
            mixed = torch.einsum("tisj,strjc->tric", self._blocks()[index], split).flatten(2)
        return _images(mixed.flatten(0, 1), activations)

    def _blocks(self) -> Tensor:
        shape = (self.num_columns, self.num_subspaces)
        return self.weight.view(*shape, *shape)

    def _rows(self, activations: Tensor) -> Tensor:
        """Views `(T * n, C, ...)` as `(T, R, C)`; no copy in channels_last."""
        last = activations.movedim(1, -1)
        return last.reshape(self.num_columns, -1, last.shape[-1])


def _images(rows: Tensor, like: Tensor) -> Tensor:
    """Converts `(R, C)` back to images `(N, C, ...)` with the spatial sizes of `like`."""
    return rows.reshape(-1, *like.shape[2:], like.shape[1]).movedim(-1, 1)

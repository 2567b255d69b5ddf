"""One task's network as a module of torch alone."""

import copy
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from lws_lightning.sharing.adapters import merge
from lws_lightning.sharing.batch_norm import restore_batch_norms
from lws_lightning.sharing.random_layers import restore_random_layers

__all__ = ["standalone_network"]

_RESERVED = frozenset(dir(nn.Sequential()))


def standalone_network(modules: Sequence[nn.Module], names: Sequence[str], task: int) -> nn.Sequential:
    """Copies modules into an independent chain, converted back from this package's multi-task modules.

    Factors of low rank are added to their weights. Adapters beside convolutions remain modules of this package.

    Args:
        modules: The chain, in order.
        names: A name for each. Characters that are invalid in a submodule's name become `_`; duplicates get a number.
        task: The task whose running statistics to use, if these are kept per task.

    Returns:
        Deep copies in eval mode, with float32 weights on the CPU in torch's default memory layout. They share no memory
        with other networks, and all parameters require gradients, so that they can be trained further.
    """
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    for module, name in zip(modules, names, strict=True):
        cleaned = name.replace(".", "_") or "_"
        key, number = cleaned, 2
        while key in chain or key in _RESERVED:
            key, number = f"{cleaned}_{number}", number + 1
        chain[key] = restore_random_layers(restore_batch_norms(merge(copy.deepcopy(module)), task))
    network = nn.Sequential(chain).cpu().float().eval().requires_grad_(True)
    for tensor in (*network.parameters(), *network.buffers()):
        # Some formats store the layout, and an unexpected channels_last may be slow.
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    return network

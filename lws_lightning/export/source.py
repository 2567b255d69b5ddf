"""Python code that builds an exported network, for files that hold only its weights."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

__all__ = ["network_source"]

_HEADER = "from collections import OrderedDict\nfrom torch import nn\n\nnetwork = "


def network_source(network: nn.Sequential, images: Tensor) -> str | None:
    """Returns code that builds a network of the same architecture using only `torch.nn`.

    The `repr` of torch's modules is nearly their constructor call. To verify it, the code is run, gets the network's
    weights, and must give the same outputs.

    Args:
        network: In eval mode.
        images: A batch to compare outputs on.

    Returns:
        Code that sets `network`; None if the network has modules that are not torch's or whose `repr` is incomplete.
    """
    expression = _expression(network)
    if expression is None:
        return None
    try:
        # The expression contains only constructor calls of torch.nn, and never comes from a file.
        built = eval(expression, {"__builtins__": {}, "nn": nn, "OrderedDict": OrderedDict, "True": True})
        built.load_state_dict(network.state_dict())
        with torch.no_grad():
            same = torch.equal(built.eval()(images), network(images))
    except Exception:  # an incomplete `repr` can lead to any exception
        return None
    return f"{_HEADER}{expression}\n" if same else None


def _expression(module: nn.Module, indent: str = "") -> str | None:
    cls = type(module)
    if isinstance(module, nn.Sequential) and cls is nn.Sequential:
        deeper = indent + "    "
        lines = []
        for name, child in zip(module._modules, module, strict=True):  # not `named_children`, which omits duplicates
            child_expression = _expression(child, deeper)
            if child_expression is None:
                return None
            lines.append(f"{deeper}({name!r}, {child_expression}),\n")
        return f"nn.Sequential(OrderedDict([\n{''.join(lines)}{indent}]))" if lines else "nn.Sequential()"
    if getattr(nn, cls.__name__, None) is not cls or any(True for _ in module.children()):
        return None
    return f"nn.{cls.__name__}({module.extra_repr()})"

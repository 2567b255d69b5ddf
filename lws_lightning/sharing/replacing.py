"""Replaces modules within a module, each once even if used in several places."""

from collections.abc import Callable

from torch import nn

__all__ = ["replace_modules"]


def replace_modules(module: nn.Module, replace: Callable[[nn.Module, str], nn.Module]) -> nn.Module:
    """Replaces a module, or modules within it.

    A module used in several places gets a single replacement; `Module.named_children` would list only the first place.

    Args:
        module: Changed in place, unless it is itself replaced.
        replace: Called with a module and its first path, such as `0.conv`. The children of modules that it returns
            unchanged are visited, too.

    Returns:
        The module or its replacement.
    """
    done: dict[nn.Module, nn.Module] = {}

    def visit(part: nn.Module, path: str) -> nn.Module:
        if part not in done:
            done[part] = replace(part, path)
            if done[part] is part:
                for name, child in list(part._modules.items()):
                    if child is not None:
                        setattr(part, name, visit(child, f"{path}.{name}" if path else name))
        return done[part]

    return visit(module, "")

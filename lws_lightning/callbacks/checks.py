"""Checks the module of a Trainer."""

from lightning.pytorch import Callback, LightningModule

from lws_lightning.methods import MultiTaskMethod

__all__ = ["require_method"]


def require_method(module: LightningModule, callback: Callback) -> MultiTaskMethod:
    """Returns the module, which must be a `MultiTaskMethod`.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(module, MultiTaskMethod):
        raise TypeError(
            f"{type(callback).__name__} works with the methods of lws_lightning and classes derived from "
            f"MultiTaskMethod; {type(module).__name__} is not one."
        )
    return module

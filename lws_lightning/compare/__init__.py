"""Compares ways of sharing on some data within a budget of time: `lws compare`."""

from lws_lightning.compare.command import compare

__all__ = ["compare"]

"""Random numbers as a pure function of counters, independent of global generator state.

Each draw uses a generator made here from the run's seed and from what is drawn (step, phase, task, ...). A run
resumed from its checkpoint therefore continues bit for bit, whatever the number of workers.
"""

import hashlib
import os

import torch

__all__ = ["generator_for", "resolve_seed", "seed_for"]


def generator_for(seed: int, *counters: int | str) -> torch.Generator:
    """Makes a CPU generator that depends only on `seed` and `counters`.

    Args:
        seed: The run's seed.
        *counters: What is drawn, for example `("population", step, "nes")`. Different counters give independent
            streams.
    """
    return torch.Generator().manual_seed(seed_for(seed, *counters))


def seed_for(seed: int, *counters: int | str) -> int:
    """Returns the seed in [0, 2^63) that `generator_for` uses, for generators on other devices."""
    digest = hashlib.blake2b(repr((seed, *counters)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def resolve_seed(seed: int | None) -> int:
    """Returns `seed`; if it is None, the seed passed to `seed_everything`, else 0."""
    if seed is not None:
        return seed
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))

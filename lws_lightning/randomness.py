"""Random numbers as a pure function of counters, never of a global generator's state.

Whatever is drawn at random in a run is drawn from a generator made here from the run's seed and from
what is being drawn (step, phase, task, ...). A resumed run therefore continues bit for bit with nothing but
its checkpoint, whatever the number of workers.
"""

import hashlib
import os

import torch

__all__ = ["generator_for", "resolve_seed"]


def generator_for(seed: int, *counters: int | str) -> torch.Generator:
    """Makes a CPU generator that depends on `seed` and `counters` alone.

    Args:
        seed: The run's seed.
        *counters: What is drawn, for example `("population", step, "nes")`. Different counters give
            independent streams.
    """
    digest = hashlib.blake2b(repr((seed, *counters)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def resolve_seed(seed: int | None) -> int:
    """Returns `seed`, or where it is None the one that `seed_everything` was called with, or else 0."""
    if seed is not None:
        return seed
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))

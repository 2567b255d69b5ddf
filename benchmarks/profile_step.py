"""`python -m benchmarks.profile_step [networks]`: where a training step's time goes, in percent of the whole."""

import sys
import time
from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.workloads import PI, WORKLOADS

GROUPS = {
    "convolution": ("conv", "mkldnn_conv", "thnn_conv"),
    "matrix product": ("addmm", "aten::mm", "bmm", "linear"),
    "normalisation": ("batch_norm", "addcmul", "rsqrt", "aten::sum", "aten::mul", "aten::add", "aten::sub"),
    "pooling, ReLU": ("pool", "relu", "threshold"),
    "gather, copy": ("index", "cat", "copy", "stack", "to_copy", "contiguous", "clone", "fill", "zero"),
    "Adam, norm": ("adam", "norm", "foreach"),
    "loss": ("softmax", "nll", "cross_entropy"),
}


def main() -> None:
    """Prints a table."""
    names = sys.argv[1:] or list(WORKLOADS)
    print(f"float32, {torch.get_num_threads()} thread(s); the rest is planning, Python and dispatch")
    print(f"{'network':<19}{'pi':<11}" + "".join(f"{group:>16}" for group in GROUPS) + f"{'rest':>8}")
    for name in names:
        for pi in PI:
            shares = _shares(name, pi)
            rest = 100 - sum(shares.values())
            print(f"{name:<19}{pi:<11}" + "".join(f"{shares[group]:>16.1f}" for group in GROUPS) + f"{rest:>8.1f}")


def _shares(name: str, pi: str, rounds: int = 6) -> dict[str, float]:
    workload = WORKLOADS[name]
    step = workload.our_step(workload.make_network())
    populations = workload.populations(pi, rounds)
    for population in populations[:2]:
        step(*population)
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for population in populations:
            step(*population)
        total = time.perf_counter() - start
    shares: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        key = event.key.lower()
        if not key.startswith("aten::"):
            continue
        group = next((group for group, marks in GROUPS.items() if any(mark in key for mark in marks)), None)
        if group is not None:
            shares[group] += event.self_cpu_time_total / 1e4 / total
    return shares


if __name__ == "__main__":
    main()

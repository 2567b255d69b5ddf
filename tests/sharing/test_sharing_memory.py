"""The process keeps the memory of freed tensors."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, torch
from lws_lightning.sharing import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(48 << 18)  # 48 MiB, above what the C library ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

by_itself = min(faults() for _ in range(3))
assert keep_freed_memory()
kept = min(faults() for _ in range(3))  # what is freed may be found in pieces at first
print(by_itself, kept)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    by_itself, kept = map(int, done.stdout.split())
    assert kept * 10 < by_itself

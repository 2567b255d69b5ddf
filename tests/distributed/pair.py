"""Two processes that stay: starting one takes seconds, and most tests need two."""

import importlib
import multiprocessing
import os
import pickle
import traceback

import pytest
import torch
from distributed_small import free_port
from pictures import reuse_pictures

_WAIT = 240.0


class Pair:
    """Runs a function of `distributed_runs` in two processes at once, and returns what each of them returned."""

    def __init__(self):
        self._start()

    def _start(self):
        context = multiprocessing.get_context("spawn")
        port = free_port()
        self._pipes, self._processes = [], []
        for rank in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, port), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self, function, *args, **options):
        """Returns the two results; of a function that raised, the exception's class name and message."""
        for pipe in self._pipes:
            pipe.send((function.__module__, function.__name__, args, options))
        results = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(_WAIT):
                self.close()
                self._start()  # for the tests that come
                pytest.fail(f"rank {rank} hangs in {function.__name__}")
            results.append(pickle.loads(pipe.recv_bytes()))
        return results

    def close(self):
        for process in self._processes:
            process.kill()  # not `terminate`, which a process that waits for the other one does not notice
            process.join()


def _serve(pipe, rank, port):
    torch.set_num_threads(1)
    reuse_pictures()
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "tests",  # tells Lightning that the processes are there
    }
    while True:
        module, name, args, options = pipe.recv()
        try:
            result = getattr(importlib.import_module(module), name)(*args, **options)
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            result = (type(error).__name__, str(error))
        pipe.send_bytes(pickle.dumps(result))  # not `send`, which would share the memory of tensors

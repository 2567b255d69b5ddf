"""Two processes for all tests of this folder."""

import pytest
from pair import Pair


@pytest.fixture(scope="session")
def pair():
    """Runs a function of `distributed_runs` in two processes."""
    processes = Pair()
    yield processes
    processes.close()

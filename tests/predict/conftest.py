import pytest
from odd_tasks import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A checkpoint of three tasks with odd names on normalised images, and its method."""
    return train(tmp_path_factory.mktemp("run"), nes_samples=2, sgd_samples=2)

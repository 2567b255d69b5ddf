"""DKL-MNIST's files with few images."""

import pytest
from fakes import write_dkl_mnist


@pytest.fixture
def root(tmp_path):
    return write_dkl_mnist(tmp_path / "data", train_per_class=6, test_per_class=2)

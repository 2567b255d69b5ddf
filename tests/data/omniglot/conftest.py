"""Folders of drawings, and a cache folder of each test's own."""

import shutil

import pytest
from drawings import ALPHABETS, OJIBWE
from fakes import omniglot_folder, write_omniglot


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Drawings that no test changes."""
    return write_omniglot(tmp_path_factory.mktemp("data"), ALPHABETS)


@pytest.fixture
def own(root, tmp_path):
    """A copy of one alphabet."""
    shutil.copytree(omniglot_folder(root, OJIBWE), omniglot_folder(tmp_path / "own", OJIBWE))
    return tmp_path / "own"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "lws_lightning" / "Omniglot"

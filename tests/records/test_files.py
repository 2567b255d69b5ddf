"""Files are whole or not there."""

import os

import pytest

from lws_lightning.records import write_atomically


def test_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, "long old content\n")
    write_atomically(path, "été")
    assert path.read_bytes() == "été".encode()
    assert [each.name for each in path.parent.iterdir()] == ["file.txt"]


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


def test_files_obey_the_umask(tmp_path):
    mask = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file.txt", b"x")
    finally:
        os.umask(mask)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o644

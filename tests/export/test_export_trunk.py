"""Exported networks with trained parts beside a frozen block."""

import pytest
import torch
from small import digits, learned

from lws_lightning.export import FORMATS, export_task


@pytest.mark.parametrize("format", list(FORMATS))
@pytest.mark.parametrize("copies", ["adapter", "lora", "norm"])
def test_the_file_is_equal_and_merged_where_that_is_exact(copies, format, tmp_path):
    for package in FORMATS[format].packages:
        pytest.importorskip(package)
    data = digits()
    module = learned(data, learned_layers=["conv"], frozen_layers=["*"], copies=copies, network_input={"size": 10})
    done = export_task(module, 0, format, tmp_path / "model")
    assert done.difference < 1e-5
    if format == "state_dict":
        names = torch.load(tmp_path / "model", weights_only=True)["state_dict"]
        assert any("parametrizations" in name for name in names) is False
        assert any("down" in name for name in names) is (copies == "adapter")

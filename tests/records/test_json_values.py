"""Values become plain ones, and dataclasses go to JSON and back."""

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from lws_lightning.records import Record, to_json_value


class Colour(Enum):
    RED = 1


def test_plain_values():
    values = {
        "path": Path("a/b"),
        "inf": float("inf"),
        "numpy": np.float32(0.5),
        "array": np.arange(3),
        "tensor": torch.tensor([[1, 2]]),
        "large": torch.zeros(2000),
        "tuple": (1, None, True),
        "enum": Colour.RED,
        "function": to_json_value,
        "class": Path,
        "object": object(),
        3: {"nested": {4}},
    }
    found = to_json_value(values)
    json.dumps(found, allow_nan=False)
    assert found["object"].startswith("<object object")
    del found["object"]
    assert found == {
        "path": str(Path("a/b")),
        "inf": "inf",
        "numpy": 0.5,
        "array": [0, 1, 2],
        "tensor": [[1, 2]],
        "large": "Tensor (2000,)",
        "tuple": [1, None, True],
        "enum": "RED",
        "function": "lws_lightning.records.json_values.to_json_value",
        "class": "pathlib.Path",
        "3": {"nested": [4]},
    }


@dataclass(frozen=True)
class Part(Record):
    share: float
    kind: Literal["a", "b"]


@dataclass(frozen=True)
class Whole(Record):
    name: str
    parts: dict[str, Part]
    rows: list[list[int]] | None
    details: dict[str, Any]
    last: Part | None
    path: Path = Path()


WHOLE = Whole("x", {"one": Part(0.5, "a")}, [[1, 2], []], {"deep": [1, {"er": None}]}, None)


def test_a_dataclass_goes_to_json_and_back():
    plain = {name: value for name, value in json.loads(json.dumps(WHOLE.to_json())).items() if name != "path"}
    assert Whole.from_json(plain) == WHOLE
    assert Whole.from_json({**plain, "rows": None, "last": {"share": 1, "kind": "b"}}).last == Part(1.0, "b")


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 0.1, 1e300])
def test_numbers_that_are_not_finite_go_to_json_and_back(number):
    text = json.dumps(Part(number, "a").to_json(), allow_nan=False)
    assert Part.from_json(json.loads(text)) == Part(number, "a")
    nan = Part.from_json(Part(float("nan"), "a").to_json()).share
    assert nan != nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name is '3'"),
        ({"parts": []}, "parts is"),
        ({"parts": {"one": {"share": 1.0}}}, "parts.one.kind is missing"),
        ({"parts": {"one": {"share": "much", "kind": "a"}}}, "parts.one.share is 'much', not a number"),
        ({"parts": {"one": {"share": True, "kind": "a"}}}, "parts.one.share is True, not a number"),
        ({"last": {"share": 1.0, "kind": "c"}}, "last.kind is 'c'"),
        ({"rows": [[1], ["a"]]}, r"rows\[1\]\[0\] is 'a'"),
        ({"rows": [[True]]}, r"rows\[0\]\[0\] is 'True'"),
    ],
)
def test_what_is_damaged_is_named(changes, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        Whole.from_json({**WHOLE.to_json(), **changes})
    for other in (None, [], 3):
        with pytest.raises(ValueError, match="not an object"):
            Whole.from_json(other)

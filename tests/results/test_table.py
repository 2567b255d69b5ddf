import csv
import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from lws_lightning.results.document import Bullets, Heading, as_markdown, print_blocks
from lws_lightning.results.table import Column, Table, csv_text

ITEMS = [("a | b", 1 / 3, ["x", "é"]), ("<i>日本</i>", None, [])]
COLUMNS = [
    Column("name", lambda item: item[0], "who", text=True),
    Column("share", lambda item: item[1], "share", "{:.1%}"),
    Column("runs", lambda item: item[2]),
    Column("length", lambda item: item[2], "length", lambda runs: f"{len(runs)} runs", csv=False),
]


def printed(*blocks, width=80):
    file = io.StringIO()
    print_blocks(blocks, Console(file=file, width=width))
    return file.getvalue()


def test_readers_see_formatted_values_of_columns_with_a_heading():
    table = Table(ITEMS, COLUMNS)
    assert [column.heading for column in table.shown] == ["who", "share", "length"]
    assert table.cells == [["a | b", "33.3%", "2 runs"], ["<i>日本</i>", "-", "0 runs"]]


def test_markdown():
    assert Table(ITEMS, COLUMNS).markdown().splitlines() == [
        "| who         | share | length |",
        "| ----------- | ----: | -----: |",
        r"| a \| b      | 33.3% | 2 runs |",
        r"| \<i>日本\</i> |     - | 0 runs |",
    ]


def test_csv_has_all_digits_lists_as_json_and_the_columns_of_all_tables():
    other = Table([("c", 2)], [Column("name", lambda item: item[0]), Column("more", lambda item: item[1])])
    text = csv_text([Table([], [Column("nothing", str)]), Table(ITEMS, COLUMNS), other])
    assert list(csv.DictReader(io.StringIO(text))) == [
        {"name": "a | b", "share": "0.3333333333333333", "runs": '["x", "é"]', "more": ""},
        {"name": "<i>日本</i>", "share": "", "runs": "[]", "more": ""},
        {"name": "c", "share": "", "runs": "", "more": "2"},
    ]
    assert csv_text([Table([], COLUMNS)]) == ""


def test_selected_columns_stand_in_the_order_of_their_names():
    table = Table(ITEMS, COLUMNS, "all").select(["length", "name"], "two")
    assert [column.name for column in table.shown] == ["length", "name"]
    assert table.caption == "two"


@pytest.mark.parametrize("width", [40, 80, 240])
def test_a_terminal_sees_every_cell_within_its_width(width):
    names = [f"column {number}" for number in range(15)]
    columns = [
        Column("row", lambda item: item, "row", text=True),
        *(Column(name, lambda item, name=name: f"{item}{name[7:]}", name) for name in names),
        Column("long", lambda item: "a sentence " * 12, "a remark", text=True),
    ]
    text = printed(Table(["日", "B"], columns), width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert all(f"column {n}" in text and f"日{n}" in text and f"B{n}" in text for n in range(15))
    assert text.count("sentence") == 24
    rows = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert rows.count("日") == rows.count("B") == rows.count("row")
    assert (rows.count("row") == 1) == (width == 240)


def test_names_are_no_markup_in_a_terminal():
    text = printed(
        Heading("[b]x[/b]"), "[red]y", Bullets("[i]", [":smile: /a/path"]), Table([":x:"], [Column("n", str, "[u]")])
    )
    for each in ("[b]x[/b]", "[red]y", "[i]:", ":smile: /a/path", ":x:", "[u]"):
        assert each in text


def test_document_as_markdown():
    blocks = [Heading("a|b"), "two\nlines <x>", Bullets("List", ["<y>"])]
    assert as_markdown(blocks) == "### a\\|b\n\ntwo\nlines \\<x>\n\nList:\n\n- \\<y>\n"
    table = Table([1], [Column("n", lambda item: item, "n")], "What it is.")
    assert as_markdown([table]) == "What it is.\n\n|   n |\n| --: |\n|   1 |\n"

"""Lines that are replaced in place: how many rows they need, and what other output does to them."""

from __future__ import annotations

import io

import pytest

from zkconsumer.cli.console import print_message
from zkconsumer.cli.redrawn_lines import RedrawnLines, fitting_lines


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "6")


def test_the_next_lines_replace_all_rows_of_the_lines_before() -> None:
    stream = io.StringIO()
    with RedrawnLines(stream) as place:
        place.draw(["one", "a line of 21 columns.", "\x1b[31mten chars.\x1b[0m"], 1)
        stream.truncate(0)
        stream.seek(0)
        place.draw(["two"], 1)
    assert stream.getvalue() == "\x1b[5Ftwo\x1b[K\n\x1b[J"


def test_after_a_message_the_next_lines_come_below_it() -> None:
    stream = io.StringIO()
    with RedrawnLines(stream) as place:
        place.draw(["one"], 1)
        print_message("a broker does not answer")
        place.draw(["two"], 1)
    assert stream.getvalue() == "one\x1b[K\n\x1b[Jtwo\x1b[K\n\x1b[J"


def test_a_table_that_is_too_high_keeps_its_beginning_and_its_totals() -> None:
    lines = ["head", *(f"row {number}" for number in range(9)), "TOTAL 9"]
    found = fitting_lines(lines, 1, 80, 5)
    assert found == ["head", "row 0", "row 1", "… 7 more lines; a pipe or a higher terminal shows all", "TOTAL 9"]
    assert fitting_lines(lines, 1, 80, 11) == lines

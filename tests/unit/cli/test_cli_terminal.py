"""What the commands print on a terminal, and in a pipe."""

from __future__ import annotations

import io

import pytest
from click.testing import Result

from bridge.testing.fake_environment import FakeEnvironment
from tests.admin_fixtures import fill_clicks, run_at
from zkconsumer.cli import common, terminal
from zkconsumer.cli.console import print_error
from zkconsumer.observe.lag_trend import LagTrend
from zkconsumer.testing.manual_clock import ManualClock


class FakeTerminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


def run(world: FakeEnvironment, *words: str) -> Result:
    """The command at a fixed time, so that two tables have the same LAG-SECONDS."""
    return run_at(world, ManualClock(), *words)


def test_a_table_in_a_pipe_is_complete(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    piped = run(world, "groups", "describe", "g1")
    monkeypatch.setattr(common, "terminal_width", lambda: 500)
    assert piped.stdout == run(world, "groups", "describe", "g1").stdout
    assert piped.stdout.split("\n")[0].endswith("OWNER-KIND  LAG-SECONDS")
    assert "columns left out" not in piped.stderr


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_table_on_a_terminal_fits_it_and_says_what_is_left_out(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    whole = run(world, "groups", "describe", "g1").stdout
    monkeypatch.setattr(common, "terminal_width", lambda: width)
    shown = run(world, "groups", "describe", "g1")
    assert max(map(len, shown.stdout.split("\n"))) <= width
    heads = shown.stdout.split("\n")[0].split()
    assert {"TOPIC", "PARTITION", "LAG", "CONSUMER-ID", "LAG-SECONDS"} <= set(heads)
    missing = [head for head in whole.split("\n")[0].split() if head not in heads]
    assert f"(columns left out: {', '.join(missing)}" in shown.stderr
    assert "-o wide shows all)" in shown.stderr
    assert run(world, "groups", "describe", "g1", "-o", "wide").stdout == whole


def test_the_lag_says_below_its_total_what_is_left_out(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(world, "lag", "g1").stdout
    monkeypatch.setattr(common, "terminal_width", lambda: 80)
    lines = run(world, "lag", "g1").stdout.splitlines()
    table = lines[: next(place for place, line in enumerate(lines) if line.startswith(("LARGEST", "TOTAL")))]
    assert len(table) == 4
    assert max(map(len, table)) <= 80
    assert lines[-1].startswith("(columns left out: LOG-END-OFFSET")
    assert run(world, "lag", "g1", "-o", "wide").stdout == whole


def test_a_command_without_the_option_names_another_way_to_see_all() -> None:
    assert common.how_to_see_all() == "append | cat to see all"


def test_the_width_is_that_of_the_terminal_or_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "133")
    monkeypatch.setattr("sys.stdout", FakeTerminal())
    assert terminal.terminal_width() == 133
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert terminal.terminal_width() is None


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not terminal.is_terminal(stream)


def test_colours_are_only_on_a_terminal_that_wants_them() -> None:
    assert terminal.has_colours(FakeTerminal(), {"TERM": "xterm"})
    assert terminal.has_colours(FakeTerminal(), {"NO_COLOR": ""})
    assert not terminal.has_colours(FakeTerminal(), {"NO_COLOR": "1"})
    assert not terminal.has_colours(FakeTerminal(), {"TERM": "dumb"})
    assert not terminal.has_colours(io.StringIO(), {"TERM": "xterm"})


def test_each_trend_with_a_colour_exists() -> None:
    assert set(terminal.CELL_COLOURS["TREND"]) <= {trend.value for trend in LagTrend}


@pytest.mark.parametrize(
    ("head", "text", "shown"),
    [
        ("TREND", "falling-behind", "\x1b[31mfalling-behind\x1b[0m"),
        ("LAG", "?", "\x1b[33m?\x1b[0m"),
        ("REMARK", "REFUSED: a reason", "\x1b[31mREFUSED: a reason\x1b[0m"),
    ],
)
def test_a_cell_has_the_colour_of_its_meaning(head: str, text: str, shown: str) -> None:
    paint = terminal.cell_colour(head, text)
    assert paint is not None
    assert paint(text) == shown


def test_most_cells_have_no_colour() -> None:
    assert terminal.cell_colour("LAG", "7") is None
    assert terminal.cell_colour("TOPIC", "Stable") is None


def test_the_prefix_of_an_error_is_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = FakeTerminal()
    monkeypatch.setattr("sys.stderr", stream)
    print_error("no such group")
    assert stream.getvalue() == "\x1b[31mzkconsumer: \x1b[0mno such group\n"

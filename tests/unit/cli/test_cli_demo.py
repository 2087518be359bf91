"""The demo is what a newcomer sees first: it must end well, and say what it did."""

from __future__ import annotations

from click.testing import CliRunner

from zkconsumer.base.threads import live_threads
from zkconsumer.cli.main import main


def test_the_demo_loses_nothing_and_reads_nothing_twice() -> None:
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    assert "two nodes of the embedded broker" in result.output
    assert "300 of 300 messages were read, 0 lost, 0 read twice." in result.output
    assert result.output.count("partition  owner  committed offset") == 4


def test_the_demo_leaves_no_thread_behind() -> None:
    CliRunner().invoke(main, ["demo"])
    assert live_threads() == []

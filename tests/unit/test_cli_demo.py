"""The demo is what a newcomer sees first: it must end well, and say what it did."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from click.testing import CliRunner

from zkconsumer.base.threads import live_threads
from zkconsumer.cli.main import main

BETTER = EntryPoint("bridge", "bridge.testing.demo_brokers:DemoBrokers", "zkconsumer.demo_brokers")


@pytest.fixture(params=[(), (BETTER,)], ids=["brokers in memory", "the embedded broker"], autouse=True)
def brokers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With and without the entry point that names better brokers."""
    monkeypatch.setattr("zkconsumer.cli.demo.entry_points", lambda group: request.param)
    return request.param


def test_the_demo_loses_nothing_and_reads_nothing_twice(brokers: Any) -> None:
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    assert ("embedded broker" in result.output) == bool(brokers)
    assert "300 of 300 messages were read, 0 lost, 0 read twice." in result.output
    assert result.output.count("partition  owner  committed offset") == 4


def test_the_demo_leaves_no_thread_behind() -> None:
    CliRunner().invoke(main, ["demo"])
    assert live_threads() == []

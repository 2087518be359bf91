"""``zkconsumer groups top``: one table in a pipe, and the live list on a screen of the test."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bridge.commands import groups_top_run
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.cli import common, live_screen, main
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.sandbox.waiting import pause_ms
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

ENTER, UP = "\r", "\x1b[A"


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    world.create_topic("clicks", 2)
    for group, offset in (("g1", b"2"), ("g2", b"5"), ("other", b"4")):
        world.zookeeper.ensure(paths.ids(group))
        for partition in range(2):
            world.zookeeper.ensure(paths.offset(group, TopicPartition("clicks", partition)), offset)
    for partition in range(2):
        world.cluster.append("clicks", partition, [b"x"] * 5)
    return world


def run(world: FakeEnvironment, *words: str) -> Result:
    return CliRunner().invoke(main, ["groups", "top", *words, "--zookeeper", ADDRESS], obj=doors(world))


def table(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.rstrip()) for line in text.splitlines()]


def test_in_a_pipe_it_prints_one_table_of_all_groups_and_ends(world: FakeEnvironment) -> None:
    done = run(world)
    assert done.exit_code == 0, done.output
    heads, *found = table(done.stdout)
    assert heads == [
        "GROUP", "KIND", "STATE", "MEMBERS", "LAG", "LAG-SECONDS", "TREND", "OWNER-CHANGES", "PHASE",
    ]  # fmt: skip
    assert [(row[0], row[4]) for row in found] == [("g1", "6"), ("other", "2"), ("g2", "0")]
    assert found[0][2:4] == ["empty", "0"]


def test_a_coordinator_group_may_have_a_name_that_zookeeper_cannot_have(world: FakeEnvironment) -> None:
    world.cluster.set_coordinator_members("app:v1", True)
    done = run(world)
    assert done.exit_code == 0, done.output
    assert {row[0] for row in table(done.stdout)[1:]} == {"app:v1", "g1", "g2", "other"}


def test_once_says_which_groups_it_could_not_read(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    read = groups_top_run.read_group_report

    def failing(session: Any, group: str) -> Any:
        if group == "g2":
            raise ZkTimeoutException("ZooKeeper did not answer")
        return read(session, group)

    monkeypatch.setattr(groups_top_run, "read_group_report", failing)
    done = run(world, "--once")
    assert done.exit_code == 1
    assert "zkconsumer: group g2: ZooKeeper did not answer" in done.stderr
    assert next(row for row in table(done.stdout) if row[0] == "g2")[2:6] == ["?", "0", "?", "?"]


class ScreenOfTheTest:
    """A screen whose keys are steps of a test: a step waits until the screen shows something, then presses keys."""

    steps: list[tuple[Callable[[str], bool], str]]
    text = ""

    def __enter__(self) -> ScreenOfTheTest:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def size(self) -> tuple[int, int]:
        return 100, 8

    def wake(self) -> None:
        pass

    def draw(self, lines: list[str]) -> None:
        columns, height = self.size()
        assert len(lines) <= height
        assert max(len(click.unstyle(line)) for line in lines) <= columns
        self.text = "\n".join(lines)

    def wait(self, timeout_ms: int) -> str:
        is_reached, keys = self.steps[0]
        if not is_reached(self.text):
            pause_ms(10)
            return ""
        del self.steps[0]
        return keys


def live(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, *steps: tuple[Callable[[str], bool], str]
) -> ScreenOfTheTest:
    screen = ScreenOfTheTest()
    screen.steps = list(steps)
    monkeypatch.setattr(live_screen, "LiveScreen", lambda: screen)
    monkeypatch.setattr(groups_top_run, "is_terminal", lambda _: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(groups_top_run, "LIST_INTERVAL_MS_MIN", 500)
    done = run(world, "--interval", "0.5")
    assert done.exit_code == 0, (done.output, screen.text)
    assert not screen.steps
    return screen


def first_groups(text: str) -> list[str]:
    return [row[0] for row in table(text)[3:-1]]


def test_the_live_list_is_filtered_sorted_and_ended_by_keys(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(
        world,
        monkeypatch,
        (lambda text: first_groups(text) == ["g1", "other", "g2"] and " 6 " in text, "g"),
        (lambda text: first_groups(text) == ["g1", "g2", "other"], "/oth" + ENTER),
        (lambda text: first_groups(text) == ["other"] and "1 of 3 match 'oth'" in text, "q"),
    )


def test_no_line_is_wider_than_a_narrow_screen_with_colours(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that wraps would scroll the first ones away."""
    monkeypatch.setattr(ScreenOfTheTest, "size", lambda _: (30, 8))
    monkeypatch.setattr(common, "terminal_width", lambda: 30)
    monkeypatch.setattr(common, "has_colours", lambda _: True)
    live(world, monkeypatch, (lambda text: "\ng1" in text, "q"))


def test_a_server_that_fails_is_named_and_the_list_goes_on(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = AdminSession.request
    is_down = [False]

    def maybe_silent(self: AdminSession, *given: Any, **more: Any) -> Any:
        if is_down[0]:
            raise ZkTimeoutException("ZooKeeper did not answer")
        return request(self, *given, **more)

    monkeypatch.setattr(AdminSession, "request", maybe_silent)

    def goes_down(text: str) -> bool:
        is_down[0] = " 6 " in text
        return is_down[0]

    def comes_back(text: str) -> bool:
        is_shown = "the list cannot be read for" in text and "g1: ZooKeeper did not answer" in text and " 6 " in text
        is_down[0] = not is_shown
        return is_shown

    live(world, monkeypatch, (goes_down, UP), (comes_back, UP), (lambda text: "did not answer" not in text, "q"))

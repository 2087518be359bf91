"""A coordinator that is killed at any append, and started again on its log, stands by all that it had answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.commands import Append
from tests.coordinator.server_harness import DELAY_MS, RANGE, REBALANCE_MS, Member, Table

Promise = Callable[[Table], None]
LONG_MS = 60_000
APPENDS = 11
"""How many appends the story makes, and so at how many it is interrupted."""


class Crash(Exception):
    """The broker is killed."""


class Killed(Table):
    """Killed at one append: before the log has it, or after that and before anybody is told."""

    appends_left = 0
    is_written = False

    def settle(self, error: int = 0) -> Append:
        if self.appends_left == 0:
            if self.is_written:
                append = self.appends[0]
                log = self.logs.setdefault(append.partition, [])
                log.extend((len(log) + index, record) for index, record in enumerate(append.records))
            raise Crash
        self.appends_left -= 1
        return super().settle(error)


def in_generation(members: list[Member], group: str = "g") -> Promise:
    """These are members, in their generation, and have their parts."""

    def check(table: Table) -> None:
        for member in members:
            assert table.heartbeat(member, group) == 0
            answer = table.answer(table.sync(member, group=group))
            assert (answer.error_code, answer.assignment) == (0, member.member_id.encode())

    return check


def story(table: Table, promises: dict[str, Promise]) -> None:
    """A group's life; ``promises``: what was answered, and must hold from then on, until it is being changed."""
    members = table.stable(2, session_ms=LONG_MS, rebalance_ms=REBALANCE_MS)
    promises["members"] = in_generation(members)

    for offset in (5, 6):
        before = promises.pop("offset", None)
        assert table.commit({("t", 0): offset, ("u", 0): offset}, members[0]) == [0, 0]
        assert before is None or offset == 6
        promises["offset"] = lambda at, offset=offset: at_offset(at, offset)  # type: ignore[misc]

    assert table.delete_offsets([("u", 0)]) == (0, [0])
    promises["deleted offset"] = lambda at: assert_equal(at.fetch([("u", 0)]), {("u", 0): (-1, "", 0)})

    token = table.join("s", instance_id="i", session_ms=LONG_MS)
    table.move(DELAY_MS)
    static = table.joined(token, "i")
    table.sync_all([static], "s")
    promises["static"] = in_generation([static], "s")
    del promises["static"]
    again = table.joined(table.join("s", instance_id="i", session_ms=LONG_MS, protocols=RANGE), "i")
    promises["static"] = lambda at: assert_equal([at.heartbeat(again, "s"), at.heartbeat(static, "s")], [0, 82])

    del promises["members"]
    for member in members:
        assert table.leave_one(member.member_id) == 0
    table.move(REBALANCE_MS)
    assert table.state() == "Empty"
    promises["former members"] = lambda at: assert_equal([at.commit({("t", 0): 9}, one) for one in members], [[25]] * 2)
    assert table.commit({("t", 0): 7}) == [0]
    promises["offset"] = lambda at: at_offset(at, 7)

    for promise in ("offset", "former members", "deleted offset"):
        del promises[promise]
    assert table.delete("g") == {"g": 0}
    promises["deleted group"] = lambda at: assert_equal((at.state(), at.fetch([("t", 0)])["t", 0][0]), ("Dead", -1))


def assert_equal(found: object, wanted: object) -> None:
    assert found == wanted


def at_offset(table: Table, offset: int) -> None:
    # What was under way when the broker was killed, and nobody was told of, may have been written or not.
    assert table.fetch([("t", 0)])["t", 0][0] in (offset, offset + 1)


@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
@pytest.mark.parametrize("is_written", [False, True], ids=["not written", "written"])
@pytest.mark.parametrize("appends", range(APPENDS))
def test_what_was_answered_before_a_kill_holds_after_it(appends: int, is_written: bool, release: str) -> None:
    table = Killed(behaviour_of(release))
    table.appends_left, table.is_written = appends, is_written
    promises: dict[str, Promise] = {}
    try:
        story(table, promises)
    except Crash:
        table.appends.clear()
    for promise in promises.values():
        promise(table.restart())


@pytest.mark.parametrize(("release", "appends"), [("3.9.1", APPENDS - 2), ("4.1.1", APPENDS)])
def test_the_story_is_interrupted_at_each_of_its_appends(release: str, appends: int) -> None:
    table = Killed(behaviour_of(release))
    table.appends_left = 1_000
    story(table, {})
    assert 1_000 - table.appends_left == appends

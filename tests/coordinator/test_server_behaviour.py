"""In what the releases differ: each row of the table, in each column that differs."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from bridge.coordinator.behaviour import COLUMNS, ROWS, Behaviour, behaviour_of
from bridge.coordinator.records import StoredGroupKey, StoredOffsetKey, read_key
from tests.coordinator.server_harness import CONFIG, DELAY_MS, REBALANCE_MS, Member, Table
from zkconsumer.errors import UsageError
from zkconsumer.wire.group_records import value_version

OLDEST = "0.9.0.1"
T0 = {("t", 0): 1}


def at(release: str) -> Table:
    return Table(behaviour_of(release))


def releases_from(first: str) -> list[tuple[str, bool]]:
    """Each column, and whether it is not before the first."""
    return [(release, COLUMNS.index(release) >= COLUMNS.index(first)) for release in COLUMNS]


def emptied(release: str, group: str = "g") -> Table:
    """A group whose one member has committed, and left."""
    table = at(release)
    (member,) = table.stable(version=0, group=group)
    table.commit(T0, member, group=group, version=2)
    assert table.leave_one(member.member_id, group) == 0
    return table


# --- the table itself ------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_every_field_and_its_steps_ascend() -> None:
    assert set(ROWS) == {field.name for field in dataclasses.fields(Behaviour)}
    for steps in ROWS.values():
        numbers = [tuple(map(int, since.split("."))) for since in steps]
        assert numbers[0] == (0, 9)
        assert numbers == sorted(numbers)
        assert len(set(steps.values())) > 1, "a row in which all are alike tells nothing"


def test_neighbouring_columns_are_told_apart() -> None:
    columns = [behaviour_of(release) for release in COLUMNS]
    alike = [name for name, one, other in zip(COLUMNS, columns, columns[1:], strict=False) if one == other]
    assert alike == ["2.8.2", "3.6.0"]


def test_a_release_may_be_named_by_its_first_numbers() -> None:
    assert behaviour_of("1.1") == behaviour_of("1.1.1")
    assert behaviour_of() == behaviour_of("4.1.1")


@pytest.mark.parametrize("release", ["0.8.2.2", "trunk", "", "1.x"])
def test_what_has_no_group_coordinator_is_refused(release: str) -> None:
    with pytest.raises(UsageError, match="release"):
        behaviour_of(release)


def test_defaults_are_those_of_the_release() -> None:
    seen = [
        (config.group_max_session_timeout_ms, config.offsets_retention_minutes)
        for config in (behaviour_of(release).default_config() for release in COLUMNS)
    ]
    old = [(30_000, 1_440), *[(300_000, 1_440)] * 3, (300_000, 10_080)]
    assert seen == [*old, *[(1_800_000, 10_080)] * 4]


# --- groups that are empty -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "has_empty"), releases_from("0.10.2.2"))
def test_a_group_that_was_emptied_stays_or_is_dead_at_once(release: str, has_empty: bool) -> None:
    table = emptied(release)
    assert table.describe(version=0).group_state == ("Empty" if has_empty else "Dead")
    assert [row.group_id for row in table.list_groups().groups] == (["g"] if has_empty else [])
    last = table.written[-1].records[-1]
    assert read_key(last.key) == StoredGroupKey("g")
    assert (last.value is not None) == has_empty
    # Its offsets stay, in all releases.
    for broker in (table, table.restart()):
        assert broker.fetch([("t", 0)]) == {("t", 0): (1, "", 0)}


@pytest.mark.parametrize(("release", "has_empty"), releases_from("0.10.2.2"))
def test_a_group_goes_on_counting_or_begins_again_after_it_was_empty(release: str, has_empty: bool) -> None:
    table = emptied(release)
    token = table.join(version=0)
    table.move(2 * DELAY_MS)
    assert table.joined(token).generation_id == (3 if has_empty else 1)


@pytest.mark.parametrize(("release", "has_empty"), releases_from("0.10.2.2"))
def test_a_group_that_holds_only_offsets_is_empty_or_dead(release: str, has_empty: bool) -> None:
    table = at(release)
    assert table.commit(T0, version=2) == [0]
    assert table.describe(version=0).group_state == ("Empty" if has_empty else "Dead")
    assert table.fetch() == {("t", 0): (1, "", 0)}


@pytest.mark.parametrize(("release", "has_empty"), releases_from("0.10.2.2"))
def test_a_former_member_does_not_commit(release: str, has_empty: bool) -> None:
    table = emptied(release)
    assert table.commit(T0, Member("client-1", 1, ""), version=2) == [25 if has_empty else 22]


@pytest.mark.parametrize("release", [OLDEST])
def test_an_assignment_that_is_written_after_its_group_has_gone_is_gone_too(release: str) -> None:
    table = at(release)
    (member,) = table.rebalanced(version=0)
    table.holds_appends = True
    table.sync(member, {}, version=0)
    table.leave_one(member.member_id)
    table.settle()
    table.settle()
    assert table.restart().describe(version=0).group_state == "Dead"
    assert table.describe(version=0).group_state == "Dead"


def test_an_assignment_of_a_group_that_has_gone_is_not_delivered_to_the_one_that_came_after() -> None:
    table = at(OLDEST)
    (member,) = table.rebalanced(version=0)
    table.holds_appends = True
    table.sync(member, {member.member_id: b"old"}, version=0)
    table.leave_one(member.member_id)
    again = table.joined(table.join(version=0))
    assert again.generation_id == member.generation_id == 1
    parked = table.sync(again, {again.member_id: b"new"}, version=0)
    table.settle()
    assert not table.is_answered(parked)
    table.settle()
    table.settle()
    assert table.answer(parked).assignment == b"new"
    assert table.restart().group().get(again.member_id).assignment == b"new"


# --- joining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "waits"), releases_from("0.11.0.3"))
def test_the_first_member_waits_for_others_or_is_answered_at_once(release: str, waits: bool) -> None:
    table = at(release)
    token = table.join(version=0)
    assert table.is_answered(token) != waits
    table.move(DELAY_MS)
    assert table.joined(token).generation_id == 1


@pytest.mark.parametrize("release", [OLDEST, "0.10.2.2"])
def test_without_an_initial_delay_the_second_member_makes_a_second_generation(release: str) -> None:
    table = at(release)
    first = table.joined(table.join(version=0))
    second = table.join(version=0)
    assert not table.is_answered(second)
    assert table.joined(table.join(member_id=first.member_id, version=0)).generation_id == 2
    assert table.joined(second).generation_id == 2


@pytest.mark.parametrize(("release", "extends"), releases_from("4.1.1")[2:])
def test_the_initial_delay_of_a_group_that_was_emptied_is_extended_or_not(release: str, extends: bool) -> None:
    table = emptied(release)
    first = table.join(version=0)
    table.move(DELAY_MS - 1)
    second = table.join(version=0)
    table.move(1)
    assert table.is_answered(first) != extends
    table.move(DELAY_MS)
    assert table.joined(first).generation_id == table.joined(second).generation_id == 3


@pytest.mark.parametrize("release", COLUMNS[2:])
def test_a_leave_during_the_initial_delay_does_not_end_it(release: str) -> None:
    table = at(release)
    first, second = table.join(version=0), table.join(version=0)
    table.move(DELAY_MS // 2)
    assert table.leave_one("client-2") == 0
    assert table.answer(second).error_code == 25
    assert not table.is_answered(first)
    table.move(2 * DELAY_MS)
    assert table.joined(first).generation_id == 1


@pytest.mark.parametrize(("release", "limits"), releases_from("2.8.2"))
def test_the_size_of_a_group_is_limited_or_not(release: str, limits: bool) -> None:
    table = Table(behaviour_of(release), replace(CONFIG, group_max_size=2))
    tokens = [table.join(version=0) for _ in range(3)]
    refused = [table.answer(token).error_code for token in tokens if table.is_answered(token)]
    assert (81 in refused) == limits


@pytest.mark.parametrize(("release", "limits"), releases_from("2.8.2"))
def test_a_new_member_that_waits_is_dropped_after_five_minutes_or_not(release: str, limits: bool) -> None:
    table = Table(behaviour_of(release), replace(CONFIG, group_max_session_timeout_ms=1_800_000))
    table.stable(version=0, session_ms=1_000_000)
    token = table.join(version=0, session_ms=600_000)
    table.move(5 * 60 * 1_000)
    assert table.is_answered(token) == limits


@pytest.mark.parametrize(("release", "sends_away"), releases_from("2.8.2"))
def test_a_member_without_an_id_is_sent_away_with_one_or_let_in(release: str, sends_away: bool) -> None:
    table = at(release)
    token = table.join(version=4)
    answered = table.is_answered(token) and table.answer(token).error_code == 79
    assert answered == sends_away


@pytest.mark.parametrize(("release", "refuses"), releases_from("1.1.1"))
def test_an_empty_protocol_type_is_refused_or_taken(release: str, refuses: bool) -> None:
    table = at(release)
    token = table.join(version=0, protocol_type="")
    table.move(DELAY_MS)
    assert table.answer(token).error_code == (23 if refuses else 0)


@pytest.mark.parametrize("release", COLUMNS)
def test_no_protocols_are_refused_also_where_old_brokers_never_answered(release: str) -> None:
    table = at(release)
    assert table.answer(table.join(version=0, protocols=())).error_code == 23


@pytest.mark.parametrize(("release", "times_out"), releases_from("2.8.2"))
def test_members_that_do_not_sync_are_dropped_or_live_on_by_their_heartbeats(release: str, times_out: bool) -> None:
    table = at(release)
    (member,) = table.rebalanced(version=1, session_ms=30_000, rebalance_ms=REBALANCE_MS)
    table.move(30_000 - 2 * DELAY_MS - 1)
    assert table.group().has(member.member_id) != times_out


# --- heartbeats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "is_well"), releases_from("2.8.2"))
def test_a_heartbeat_while_the_leader_is_waited_for_is_well_or_asks_to_join(release: str, is_well: bool) -> None:
    table = at(release)
    (member,) = table.rebalanced(version=0)
    assert table.heartbeat(member) == (0 if is_well else 27)


@pytest.mark.parametrize(("release", "looks"), releases_from("0.10.2.2"))
@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_an_unknown_member_s_heartbeat_in_a_rebalance_is_refused_or_asks_to_join(
    release: str, looks: bool, state: str
) -> None:
    table = at(release)
    (member,) = table.rebalanced(version=0)
    if state == "PreparingRebalance":
        table.sync_all([member])
        table.join(version=0)
    assert table.state() == state
    assert table.heartbeat(Member("nobody", 1, "")) == (25 if looks else 27)


# --- groups that are going away --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "ask_again"), releases_from("2.8.2")[1:])
def test_a_group_that_is_being_deleted_asks_to_come_again_or_knows_nobody(release: str, ask_again: bool) -> None:
    table = emptied(release)
    table.holds_appends = True
    table.send_delete("g")
    told = 15 if ask_again else 25
    assert table.answer(table.join(version=0)).error_code == told
    assert table.answer(table.join(member_id="m", version=0)).error_code == told
    assert table.answer(table.sync(Member("m", 2, ""), version=0)).error_code == told
    assert table.heartbeat(Member("m", 2, "")) == told
    assert table.leave_one("m") == told
    assert table.commit(T0, Member("m", 2, ""), version=2) == [told]
    assert table.commit(T0, version=2) == [told]


# --- commits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "new"), releases_from("4.1.1"))
def test_a_member_s_commit_for_a_group_that_there_is_not(release: str, new: bool) -> None:
    somebody = Member("m", 1, "")
    assert at(release).commit(T0, somebody, version=8) == [22]
    assert at(release).commit(T0, somebody, version=9) == [69 if new else 22]


@pytest.mark.parametrize(("release", "looks_first"), releases_from("2.8.2"))
def test_nobody_s_commit_while_the_leader_is_waited_for(release: str, looks_first: bool) -> None:
    table = at(release)
    table.rebalanced(version=0)
    assert table.commit(T0, version=2) == [25 if looks_first else 27]


@pytest.mark.parametrize("release", COLUMNS)
def test_a_commit_without_generation_that_names_a_living_member_is_refused(release: str) -> None:
    table = at(release)
    (member,) = table.stable(version=0)
    assert table.commit(T0, replace(member, generation_id=-1), version=2) == [22]


@pytest.mark.parametrize("release", COLUMNS)
def test_partitions_that_there_are_not_are_the_api_layer_s_matter(release: str) -> None:
    assert at(release).commit({("nothing", 99): 1}, version=2) == [0]


# --- describing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "new"), releases_from("1.1.1"))
def test_the_state_in_which_the_leader_is_waited_for_has_a_new_name(release: str, new: bool) -> None:
    table = at(release)
    table.rebalanced(version=0)
    name = "CompletingRebalance" if new else "AwaitingSync"
    assert table.describe(version=0).group_state == name
    assert [row.group_state for row in table.list_groups(name).groups] == [name]


@pytest.mark.parametrize("release", COLUMNS)
def test_an_unknown_group_is_dead_and_from_version_6_on_an_error(release: str) -> None:
    table = at(release)
    assert (table.describe(version=5).group_state, table.describe(version=5).error_code) == ("Dead", 0)
    described = table.describe(version=6)
    assert (described.group_state, described.error_code) == ("Dead", 69)
    assert described.error_message == "Group g not found."
    assert table.describe(version=5).error_message is None


@pytest.mark.parametrize(("release", "of_the_log"), releases_from("4.1.1"))
def test_a_new_group_is_described_at_once_or_once_the_log_has_it(release: str, of_the_log: bool) -> None:
    table = Table(behaviour_of(release), holds_appends=True)
    table.join(version=0)
    assert (table.describe(version=0).group_state == "Dead") == of_the_log
    assert (table.list_groups().groups == []) == of_the_log
    while table.appends:
        table.settle()
    assert table.describe(version=0).group_state in ("PreparingRebalance", "AwaitingSync")


# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "writes"), releases_from("4.1.1"))
def test_a_new_group_is_written_at_once_or_when_it_is_stable(release: str, writes: bool) -> None:
    table = at(release)
    table.join(version=0)
    assert [read_key(record.key) for append in table.written for record in append.records] == [
        StoredGroupKey("g")
    ] * writes
    assert (table.restart().state() == "Empty") == writes


def test_a_new_group_whose_first_record_the_log_refuses_is_not_there() -> None:
    table = Table(behaviour_of("4.1.1"), holds_appends=True)
    token = table.join(version=0)
    table.settle(6)
    assert table.answer(token).error_code == 16
    assert table.state() == "Dead"
    assert [key for key in table.timers if key != ("expiry",)] == []


def test_a_new_group_whose_first_record_the_log_refuses_lives_by_the_next() -> None:
    table = Table(behaviour_of("4.1.1"), replace(CONFIG, group_initial_rebalance_delay_ms=0), holds_appends=True)
    token = table.join(version=0)
    table.move(1)
    member = table.joined(token)
    table.sync(member, {}, version=0)
    table.settle(19)
    table.settle()
    assert (table.state(), table.restart().state()) == ("Stable", "Stable")
    assert table.heartbeat(member) == 0


def test_a_member_that_was_given_an_id_in_a_group_that_could_not_be_written_finds_none() -> None:
    table = Table(behaviour_of("4.1.1"), holds_appends=True)
    token = table.join(version=4)
    assert table.answer(token).error_code == 79
    table.settle(19)
    assert table.state() == "Dead"
    assert [key for key in table.timers if key != ("expiry",)] == []


@pytest.mark.parametrize(
    ("release", "group", "offset"),
    [
        ("0.9.0.1", 0, 1),
        ("0.10.2.2", 1, 1),
        ("0.11.0.3", 1, 1),
        ("1.1.1", 1, 1),
        ("2.0.1", 1, 1),
        ("2.8.2", 3, 3),
        ("3.9.1", 3, 3),
        ("4.1.1", 3, 4),
    ],
)
def test_records_are_written_as_the_release_writes_them(release: str, group: int, offset: int) -> None:
    table = at(release)
    (member,) = table.stable(version=0)
    table.commit(T0, member, version=2)
    versions = {
        type(read_key(record.key)): value_version(record.value)
        for append in table.written
        for record in append.records
        if record.value is not None
    }
    assert versions == {StoredGroupKey: group, StoredOffsetKey: offset}


@pytest.mark.parametrize(("release", "new"), releases_from("2.8.2"))
def test_an_offset_of_a_living_member_expires_or_not(release: str, new: bool) -> None:
    config = replace(CONFIG, offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    table = Table(behaviour_of(release), config)
    (member,) = table.stable(version=0, session_ms=600_000)
    table.commit(T0, member, version=2)
    expires = table.group().stored.offsets[next(iter(table.group().stored.offsets))].value.expire_timestamp
    assert (expires is None) == new
    table.move(62_000)
    assert (table.fetch() != {}) == new
    assert table.state() == "Stable"


def test_an_old_broker_counts_an_offset_s_end_from_the_time_that_the_commit_names() -> None:
    table = at("1.1.1")
    table.commit(T0, version=1, timestamp_ms=5)
    table.commit(T0, group="h", version=2, retention_ms=7)
    found = [next(iter(table.group(group).stored.offsets.values())).value.expire_timestamp for group in ("g", "h")]
    assert found == [5 + CONFIG.offsets_retention_ms, table.now_ms + 7]

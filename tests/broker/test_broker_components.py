"""Timers, waiting fetches, the catalogue and the settings: each by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.broker.catalogue import (
    Catalogue,
    CatalogueFile,
    PartitionEntry,
    TopicEntry,
    decode_catalogue,
    encode_catalogue,
)
from bridge.broker.config import (
    BrokerConfig,
    TopicConfigOverrides,
    broker_config_entries,
    read_broker_config,
    read_topic_config,
    topic_config_entries,
)
from bridge.broker.data_folder import TOPICS, DataFolder, topic_folder_name
from bridge.broker.delayed_fetch import DelayedFetchPurgatory
from bridge.broker.sasl_server_authenticator import SaslServerAuthenticator, SaslServerState
from bridge.broker.timers import Timers
from bridge.testing import EmbeddedBroker
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition


@dataclass
class Scheduled:
    at_ms: int
    action: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualScheduler:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.scheduled: list[Scheduled] = []

    def now_ms(self) -> int:
        return self.time_ms

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> Scheduled:
        self.scheduled.append(Scheduled(self.time_ms + delay_ms, action))
        return self.scheduled[-1]

    def advance(self, to_ms: int) -> None:
        while True:
            due = [s for s in self.scheduled if s.at_ms <= to_ms and not s.is_cancelled]
            if not due:
                break
            first = min(due, key=lambda s: s.at_ms)
            self.scheduled.remove(first)
            self.time_ms = max(self.time_ms, first.at_ms)
            first.action()
        self.time_ms = to_ms


# --- timers -------------------------------------------------------------------------------------------------------


def test_a_deadline_that_is_moved_fires_once_at_the_last() -> None:
    scheduler = ManualScheduler()
    fired: list[tuple[int, int]] = []
    timers = Timers(scheduler, lambda key, deadline_ms: fired.append((scheduler.time_ms, deadline_ms)))
    for at in range(10):
        timers.set(("heartbeat", "g", "m"), 100 + at)
    scheduler.advance(108)
    assert fired == []
    scheduler.advance(1_000)
    assert fired == [(109, 109)]
    assert all(scheduled.is_cancelled for scheduled in scheduler.scheduled)


def test_a_timer_that_is_called_too_early_waits_for_its_time() -> None:
    scheduler = ManualScheduler()
    fired: list[int] = []
    timers = Timers(scheduler, lambda key, deadline_ms: fired.append(deadline_ms))
    timers.set(("join", "g"), 100)
    scheduler.time_ms = 99
    scheduler.scheduled[0].action()
    assert fired == []
    scheduler.advance(100)
    assert fired == [100]


def test_a_deadline_that_is_moved_forward_fires_then_and_a_cancelled_one_never() -> None:
    scheduler = ManualScheduler()
    fired: list[int] = []
    timers = Timers(scheduler, lambda key, deadline_ms: fired.append(deadline_ms))
    timers.set(("join", "g"), 100)
    timers.set(("join", "g"), 50)
    timers.set(("sync", "g"), 70)
    timers.cancel(("sync", "g"))
    timers.cancel(("never", "set"))
    scheduler.advance(60)
    assert fired == [50]
    timers.set(("join", "h"), 100)
    timers.cancel_all()
    scheduler.advance(1_000)
    assert fired == [50]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["set", "cancel", "wait"]), st.integers(0, 30))))
def test_whatever_is_done_a_timer_fires_at_its_last_deadline_or_not_at_all(steps: list[tuple[str, str, int]]) -> None:
    scheduler = ManualScheduler()
    wanted: dict[str, int] = {}

    def fire(key: tuple[str, ...], deadline_ms: int) -> None:
        assert wanted.pop(key[0]) == deadline_ms <= scheduler.time_ms

    timers = Timers(scheduler, fire)
    for key, what, number in steps:
        if what == "set":
            wanted[key] = scheduler.time_ms + number
            timers.set((key,), wanted[key])
        elif what == "cancel":
            wanted.pop(key, None)
            timers.cancel((key,))
        else:
            scheduler.advance(scheduler.time_ms + number)
            assert all(deadline_ms > scheduler.time_ms for deadline_ms in wanted.values())
    scheduler.advance(10_000)
    assert wanted == {}


# --- waiting fetches ----------------------------------------------------------------------------------------------


def test_a_fetch_is_completed_once_by_bytes_by_time_or_by_a_move() -> None:
    scheduler = ManualScheduler()
    fetches = DelayedFetchPurgatory(scheduler)
    done: list[str] = []
    both = [TopicPartition("t", 0), TopicPartition("t", 1)]
    for name, missing in (("few", 10), ("many", 1_000), ("moved", 1_000)):
        fetches.add(both if name != "moved" else both[1:], missing, 100, lambda name=name: done.append(name))
    fetches.on_append("t", 0, 9)
    assert done == []
    fetches.on_append("t", 0, 1)
    assert done == ["few"]
    fetches.on_append("other", 0, 10_000)
    fetches.on_partition_changed("t", 1)
    assert done == ["few", "many", "moved"]
    assert fetches.waiting_count == 0
    fetches.add(both, 1, 100, lambda: done.append("late"))
    scheduler.advance(1_000)
    assert done == ["few", "many", "moved", "late"]
    fetches.on_append("t", 0, 100)
    assert len(done) == 4


# --- the catalogue and its directory ------------------------------------------------------------------------------

entries = st.builds(
    TopicEntry,
    st.binary(min_size=16, max_size=16),
    st.lists(
        st.builds(
            PartitionEntry, st.integers(-1, 5), st.integers(0, 9), st.lists(st.integers(0, 5), max_size=3).map(tuple)
        ),
        max_size=3,
    ).map(tuple),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)


catalogues = st.builds(
    Catalogue, st.text(), st.dictionaries(st.text(max_size=9), entries, max_size=3), st.integers(0, 2**63)
)


@given(catalogues)
def test_a_catalogue_comes_back_as_it_was_saved(catalogue: Catalogue) -> None:
    assert decode_catalogue(json.loads(json.dumps(encode_catalogue(catalogue)))) == catalogue


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 9}', '{"version": 1, "topics": 3}', "\x80"])
def test_a_catalogue_that_is_none_is_refused_and_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(PreconditionFailed, match=r"catalogue\.json"):
        CatalogueFile(path).load()
    assert path.read_bytes() == text.encode("latin-1")


def test_a_save_that_fails_keeps_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CatalogueFile(tmp_path / "catalogue.json")
    assert store.load() is None
    store.save(Catalogue("one"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.save(Catalogue("two"))
    assert store.load() == Catalogue("one")


def test_what_a_killed_deletion_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.append("t", 0, [b"kept"])
    orphan = tmp_path / "data" / TOPICS / topic_folder_name("gone", b"x" * 16) / "0"
    orphan.mkdir(parents=True)
    (orphan / "00000000000000000000.log").write_bytes(b"left over")
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        assert [record.value for record in broker.records("t", 0)] == [b"kept"]
    assert not orphan.exists()


def test_topics_without_a_catalogue_are_left_alone(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        broker.append("t", 0, [b"kept"])
    catalogue = (tmp_path / "catalogue.json").read_bytes()
    (tmp_path / "catalogue.json").unlink()
    with pytest.raises(PreconditionFailed, match=r"topics without catalogue\.json"):
        EmbeddedBroker(data_dir=tmp_path).start()
    (tmp_path / "catalogue.json").write_bytes(catalogue)
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert [record.value for record in broker.records("t", 0)] == [b"kept"]


def test_a_directory_that_cannot_be_made_is_a_precondition(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreconditionFailed, match="cannot be used as the broker's directory"):
        DataFolder(tmp_path / "file" / "below")


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_of_topics_go_before_those_of_the_broker() -> None:
    broker = read_broker_config({"message.max.bytes": "500", "auto.create.topics.enable": "FALSE", "x": "1"}, ["x"])
    assert broker == BrokerConfig(message_max_bytes=500, auto_create_topics_enable=False)
    topic = read_topic_config({"segment.bytes": "1000", "retention.bytes": None})
    assert topic == TopicConfigOverrides(segment_bytes=1_000)
    told = {row.key: (row.value, row.is_default) for row in topic_config_entries(topic, broker)}
    assert told["max.message.bytes"] == ("500", True)
    assert told["segment.bytes"] == ("1000", False)
    told = {row.key: (row.value, row.is_default) for row in broker_config_entries(broker)}
    assert told["auto.create.topics.enable"] == ("false", False)
    assert told["log.retention.bytes"] == ("-1", True)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"auto.create.topics.enable": "maybe"}, "it takes true or false"),
        ({"num.partitions": "0"}, "it takes 1 to 10000"),
        ({"log.segment.bytes": "3000000000"}, "it takes 14 to 2147483647"),
    ],
)
def test_values_that_cannot_be_are_refused_in_words(properties: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_broker_config(properties)


# --- logins -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "is_right"),
    [
        (b"\0ann\0secret", True),
        (b"ann\0ann\0secret", True),
        (b"bob\0ann\0secret", False),
        (b"\0ann\0", False),
        (b"\0nobody\0", False),
        (b"\0ann", False),
        (b"\xff\0ann\0secret", False),
        (b"", False),
    ],
)
def test_who_is_let_in(message: bytes, is_right: bool) -> None:
    login = SaslServerAuthenticator({"ann": "secret"})
    assert login.handshake("PLAIN", 1).error_code == 0
    assert (login.authenticate(message).error_code == 0) == is_right
    assert login.is_complete == is_right
    assert login.principal == ("ann" if is_right else "ANONYMOUS")


@given(st.binary())
def test_any_bytes_are_a_login_or_none(message: bytes) -> None:
    login = SaslServerAuthenticator({"ann": "secret"}, SaslServerState.AUTHENTICATE)
    assert login.authenticate(message).error_code in (0, 58)

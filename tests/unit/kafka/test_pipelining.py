"""``kafka.pipelining``: how partitions are cut into questions, and in which order they and their answers travel."""

from __future__ import annotations

from typing import Any, cast

import pytest

from zkconsumer.kafka import pipelining
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.group_offsets import offset_fetch_request
from zkconsumer.kafka.pipelining import PARTITIONS_BYTES_MAX, send_pipelined, split_partitions
from zkconsumer.types import TopicPartition
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.wire.schemas import OFFSET_FETCH


class Wire:
    """Notes what is sent and received."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def send(self, api: object, version: int, body: str, timeout_ms: int) -> str:
        self.seen.append(f"send {body}")
        return body

    def receive(self, pending: str, timeout_ms: int) -> str:
        self.seen.append(f"receive {pending}")
        return pending.upper()


def asked(*questions: str) -> tuple[list[Any], list[str]]:
    wire = Wire()
    answers = list(send_pipelined(cast(Connection, wire), cast(Any, OFFSET_FETCH), 1, questions, 1_000))
    return answers, wire.seen


def test_one_question_is_ahead_and_no_more() -> None:
    assert asked("a", "b", "c") == (
        ["A", "B", "C"],
        ["send a", "send b", "receive a", "send c", "receive b", "receive c"],
    )
    assert asked("a") == (["A"], ["send a", "receive a"])
    assert asked() == ([], [])


@pytest.mark.parametrize(("topics", "name_chars", "questions"), [(1, 10, 10), (10, 1, 10), (2_000, 249, 41)])
def test_a_question_fits_into_a_brokers_socket(topics: int, name_chars: int, questions: int) -> None:
    """What it cannot read yet must lie there, or broker and client wait for each other."""
    names = [f"{number:0{name_chars}d}" for number in range(topics)]
    partitions = [TopicPartition(name, number) for name in names for number in range(40_000 // topics)]
    cut = list(split_partitions(partitions))
    assert [tp for some in cut for tp in some] == partitions
    assert len(cut) == pytest.approx(questions, abs=questions / 10)
    for version in (1, 5, 8):
        sizes = [
            len(encode_request(OFFSET_FETCH, version, 1, "c", offset_fetch_request(version, "g", some))) for some in cut
        ]
        assert max(sizes) <= PARTITIONS_BYTES_MAX + 400


def test_nothing_is_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelining, "PARTITIONS_BYTES_MAX", 1)
    assert list(split_partitions([])) == [[]]
    some = [TopicPartition("t", number) for number in range(2)]
    assert list(split_partitions(some)) == [[some[0]], [some[1]]]

"""The program of a foreign coordinator member: what its history says when the coordinator rejects a commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import CommitFailedError

from tests.lab.coordinator_member_program import CoordinatorMemberEventLog
from zkconsumer.testing.checker import Expired, HistoryNote, MemberReleasedPartition, read_history
from zkconsumer.testing.checker.history import HistoryWriter

PARTITION = ("clicks", 0)


class RejectingLibrary:
    """Each commit ends with this error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def commit(self, offsets: dict[tuple[str, int], int]) -> bool:
        raise self._error


def history_of_revocation(folder: Path, error: Exception, *, before_release: bool = True) -> list[str]:
    """The classes of the events that a member writes when its last commit before a release, or another one, fails."""
    file = folder / "history.jsonl"
    with HistoryWriter(file) as writer:
        log = CoordinatorMemberEventLog("m", writer)
        log.assigned([PARTITION])
        log.processed[PARTITION] = 7
        log.library = RejectingLibrary(error)  # type: ignore[assignment]
        if before_release:
            log.revoked([PARTITION])
        else:
            log.commit()
    return [type(event).__name__ for event in read_history(file)][-3:]


@pytest.mark.parametrize(
    "error",
    [
        KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID)),
        KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION)),
        CommitFailedError(),
    ],
    ids=["unknown member", "illegal generation", "kafka-python"],
)
def test_a_member_that_the_coordinator_has_removed_writes_that_its_session_ended(
    tmp_path: Path, error: Exception
) -> None:
    """librdkafka does not call ``on_lost`` then, and the records since the last commit come again."""
    events = history_of_revocation(tmp_path, error)
    assert events == [each.__name__ for each in (HistoryNote, Expired, MemberReleasedPartition)]


def test_another_error_of_a_commit_is_no_end_of_a_session(tmp_path: Path) -> None:
    error = KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))
    assert Expired.__name__ not in history_of_revocation(tmp_path, error)


def test_a_commit_at_an_interval_that_fails_ends_no_session(tmp_path: Path) -> None:
    """The member reads on: older clients raise the same error when a rebalance is in progress."""
    assert Expired.__name__ not in history_of_revocation(tmp_path, CommitFailedError(), before_release=False)

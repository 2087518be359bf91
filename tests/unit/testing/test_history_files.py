"""What a lab says when a history is wrong."""

from __future__ import annotations

from pathlib import Path

from tests.lab import history_files
from zkconsumer.testing.checker import (
    HistoryNote,
    LogRangeReported,
    MemberDeclared,
    RecordDelivered,
    check_history,
    read_history,
)


def test_the_text_of_a_failure_has_what_happened_around_the_first_finding(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history_files.merge(
        [
            MemberDeclared(1_000, "one", "ours", 1),
            HistoryNote(100_000, "other-1 leaves"),
            RecordDelivered(101_000, "one", "t", 0, 7),
            RecordDelivered(102_000, "one", "t", 0, 3),
            HistoryNote(101_500, "it has left"),
            LogRangeReported(200_000, "t", 0, 0, 5),
        ],
        history,
    )
    text = history_files.failure_text(check_history(read_history(history)), history)
    head, _, around = text.partition("around the first finding")
    assert head.startswith("NOT OK")
    assert str(history) in head
    assert [line.partition(":")[0] for line in around.splitlines()[1:]] == ["2", "4"]
    assert "other-1 leaves" in around
    assert "it has left" in around

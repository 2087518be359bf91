"""Interceptors: their order, one that raises, and how the configuration names them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from bridge import ConsumerInterceptor
from bridge.client.consumer_interceptors import ConsumerInterceptors, load_interceptors
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition

HERE = "tests.unit.kafka.test_consumer_interceptors"
RECORDS = (1, 5, 6)
OFFSETS = {TopicPartition("t", 1): OffsetAndMetadata(7)}


class Filter:
    """Removes one number from the records."""

    def __init__(self, number: int = 5) -> None:
        self.number = number
        self.raises = False
        self.consumed: list[tuple[int, ...]] = []
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.is_closed = False

    def on_consume(self, records: tuple[int, ...]) -> tuple[int, ...]:
        self.consumed.append(records)
        self._maybe_raise()
        return tuple(record for record in records if record != self.number)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)
        self._maybe_raise()

    def close(self) -> None:
        self.is_closed = True
        self._maybe_raise()

    def _maybe_raise(self) -> None:
        if self.raises:
            raise RuntimeError("no")


class Configured(Filter):
    """Keeps its settings; ``made`` has all of them."""

    made: ClassVar[list[Configured]] = []

    def __init__(self) -> None:
        super().__init__()
        self.values: Mapping[str, Any] | None = None
        self.made.append(self)

    def configure(self, values: Mapping[str, Any]) -> None:
        self.values = values


class Incomplete:
    def on_consume(self, records: Any) -> Any: ...


class Forgetful(Filter):
    def on_consume(self, records: tuple[int, ...]) -> Any:
        return None


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_each_interceptor_gets_the_records_of_the_last_one_that_worked(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Filter(5), Filter(6)
    interceptors = ConsumerInterceptors[tuple[int, ...]]([first, second])
    assert interceptors.on_consume(RECORDS) == (1,)
    assert second.consumed == [(1, 6)]
    assert not caplog.records
    first.raises = True
    assert interceptors.on_consume(RECORDS) == (1, 5)
    assert second.consumed[1:] == [RECORDS]
    second.raises = True
    assert interceptors.on_consume(RECORDS) is RECORDS
    assert (
        lines(caplog)
        == [
            (
                "WARNING",
                "interceptor-raised: Error executing interceptor onConsume callback "
                f"interceptor={HERE}:Filter call=on_consume",
            )
        ]
        * 3
    )
    assert caplog.records[0].exc_info is not None


def test_each_interceptor_sees_a_commit_also_behind_one_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Filter(), Filter()
    interceptors = ConsumerInterceptors[tuple[int, ...]]([first, second])
    interceptors.on_commit(OFFSETS)
    first.raises = True
    interceptors.on_commit(OFFSETS)
    assert first.commits == second.commits == [OFFSETS, OFFSETS]
    assert [level for level, _ in lines(caplog)] == ["WARNING"]
    assert "Error executing interceptor onCommit callback" in lines(caplog)[0][1]


def test_all_are_closed_also_behind_one_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Filter(), Filter()
    first.raises = True
    ConsumerInterceptors[tuple[int, ...]]([first, second]).close()
    assert first.is_closed
    assert second.is_closed
    text = f"interceptor-not-closed: Failed to close consumer interceptor interceptor={HERE}:Filter"
    assert lines(caplog) == [("ERROR", text)]


def test_one_that_returns_nothing_is_skipped_like_one_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    assert ConsumerInterceptors[Any]([Forgetful(), Filter(6)]).on_consume(RECORDS) == (1, 5)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_program_can_end_itself_in_an_interceptor() -> None:
    class Ends(Filter):
        def on_consume(self, records: tuple[int, ...]) -> tuple[int, ...]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ConsumerInterceptors[Any]([Ends()]).on_consume(RECORDS)


def test_the_configuration_names_classes_or_has_objects_in_their_order() -> None:
    values = {"client.id": "c"}
    mine: ConsumerInterceptor[tuple[int, ...]] = Filter(6)
    Configured.made.clear()
    interceptors = load_interceptors([f"{HERE}:Configured", mine], values)
    assert interceptors.on_consume(RECORDS) == (1,)
    [configured] = Configured.made
    assert configured.values is values
    both = load_interceptors(f"{HERE}:Configured, {HERE}:Filter", values)
    assert both.on_consume(RECORDS) == (1, 6)
    assert not load_interceptors("", values)
    assert both


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("com.example.Interceptor", "is not the import path of a Python class; write it as package.module:ClassName"),
        (f"{HERE}:Missing", "cannot be created: AttributeError: .*Missing"),
        (f"{HERE}:Incomplete", "is not a bridge.ConsumerInterceptor; it lacks on_commit, close"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_and_the_others_are_closed(name: str, text: str) -> None:
    Configured.made.clear()
    with pytest.raises(InvalidConfigException, match=f"interceptor.classes: .*{text}"):
        load_interceptors(f"{HERE}:Configured,{name}", {})
    assert [one.is_closed for one in Configured.made] == [True]


def test_an_object_that_is_no_interceptor_is_an_error() -> None:
    with pytest.raises(InvalidConfigException, match=r"builtins:object is not a bridge.ConsumerInterceptor"):
        load_interceptors([object()], {})

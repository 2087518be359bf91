"""Futures of requests, as RequestFutureTest of Kafka requires them."""

from __future__ import annotations

import threading

import pytest

from zkconsumer.errors import DisconnectException, UnsupportedVersionException
from zkconsumer.kafka.error_codes import INVALID_GROUP_ID, NOT_COORDINATOR, BrokerError
from zkconsumer.kafka.net.request_future import RequestFuture

ERROR = RuntimeError("boom")


class Listener:
    """Counts what it hears."""

    def __init__(self, future: RequestFuture[str]) -> None:
        self.values: list[str] = []
        self.errors: list[Exception] = []
        future.add_listener(self.values.append, self.errors.append)


def future(value: str | None = None, error: Exception | None = None) -> RequestFuture[str]:
    made: RequestFuture[str] = RequestFuture()
    if value is not None:
        made.complete(value)
    if error is not None:
        made.raise_(error)
    return made


def test_a_completed_future_has_a_value() -> None:
    done = future("foo")
    assert done.is_done
    assert done.succeeded
    assert not done.failed
    assert done.value == "foo"
    assert not done.should_block()


def test_a_raised_future_has_an_exception() -> None:
    done = future(error=ERROR)
    assert done.is_done
    assert done.failed
    assert not done.succeeded
    assert done.exception is ERROR
    assert RequestFuture.failure(ERROR).exception is ERROR


def test_a_future_that_is_not_done_has_neither() -> None:
    open_future = future()
    assert not open_future.is_done
    assert not open_future.succeeded
    assert not open_future.failed
    assert open_future.should_block()
    with pytest.raises(RuntimeError):
        _ = open_future.value
    with pytest.raises(RuntimeError):
        _ = open_future.exception


def test_a_future_may_succeed_without_a_value() -> None:
    done = RequestFuture.void_success()
    assert done.succeeded
    assert done.value is None


def test_an_exception_is_not_a_value() -> None:
    open_future: RequestFuture[Exception] = RequestFuture()
    with pytest.raises(TypeError):
        open_future.complete(ERROR)
    assert not open_future.is_done


def test_a_completed_future_is_not_completed_again() -> None:
    done = future("foo")
    with pytest.raises(RuntimeError):
        done.complete("bar")
    assert done.value == "foo"


def test_a_failed_future_is_not_completed() -> None:
    done = future(error=ERROR)
    with pytest.raises(RuntimeError):
        done.complete("foo")
    assert done.exception is ERROR


def test_a_failed_future_does_not_fail_again() -> None:
    done = future(error=ERROR)
    with pytest.raises(RuntimeError):
        done.raise_(ValueError())
    assert done.exception is ERROR


def test_a_completed_future_does_not_fail() -> None:
    done = future("foo")
    with pytest.raises(RuntimeError):
        done.raise_(ERROR)
    assert done.value == "foo"


def test_a_completed_future_has_no_exception() -> None:
    with pytest.raises(RuntimeError):
        _ = future("foo").exception


def test_a_failed_future_has_no_value() -> None:
    with pytest.raises(RuntimeError):
        _ = future(error=ERROR).value


def test_a_listener_hears_of_a_later_success_once() -> None:
    pending = future()
    listener = Listener(pending)
    pending.complete("foo")
    assert (listener.values, listener.errors) == (["foo"], [])


def test_a_listener_hears_of_a_later_failure_once() -> None:
    pending = future()
    listener = Listener(pending)
    pending.raise_(ERROR)
    assert (listener.values, listener.errors) == ([], [ERROR])


def test_a_listener_hears_at_once_of_an_earlier_success() -> None:
    assert Listener(future("foo")).values == ["foo"]


def test_a_listener_hears_at_once_of_an_earlier_failure() -> None:
    assert Listener(future(error=ERROR)).errors == [ERROR]


def test_listeners_before_and_after_a_failure_hear_of_it_once_each() -> None:
    pending = future()
    before = [Listener(pending), Listener(pending)]
    pending.raise_(ERROR)
    after = Listener(pending)
    assert [each.errors for each in (*before, after)] == [[ERROR]] * 3


def test_listeners_before_and_after_a_success_hear_of_it_once_each() -> None:
    pending = future()
    before = [Listener(pending), Listener(pending)]
    pending.complete("foo")
    after = Listener(pending)
    assert [each.values for each in (*before, after)] == [["foo"]] * 3


def test_a_composed_future_has_the_converted_value() -> None:
    pending = future()
    composed: RequestFuture[int] = pending.compose(lambda value, adapted: adapted.complete(len(value)))
    pending.complete("hello")
    assert composed.value == 5


def test_a_composed_future_has_the_same_failure() -> None:
    pending = future()
    composed: RequestFuture[int] = pending.compose(lambda value, adapted: adapted.complete(len(value)))
    pending.raise_(ERROR)
    assert composed.exception is ERROR


def test_a_composed_future_may_convert_a_failure() -> None:
    pending = future()
    composed: RequestFuture[int] = pending.compose(
        lambda value, adapted: adapted.complete(1), lambda error, adapted: adapted.complete(2)
    )
    pending.raise_(ERROR)
    assert composed.value == 2


def test_a_chained_future_ends_in_the_same_way() -> None:
    for source in (future("foo"), future(error=ERROR)):
        chained = future()
        source.chain(chained)
        assert (chained.succeeded, chained.failed) == (source.succeeded, source.failed)


@pytest.mark.parametrize(
    ("error", "is_retriable"),
    [
        (DisconnectException("gone"), True),
        (BrokerError(NOT_COORDINATOR, "Heartbeat"), True),
        (BrokerError(INVALID_GROUP_ID, "Heartbeat"), False),
        (UnsupportedVersionException("old"), False),
        (ERROR, False),
    ],
)
def test_which_failures_are_retriable(error: Exception, is_retriable: bool) -> None:
    assert future(error=error).is_retriable == is_retriable


def complete_at(start: threading.Barrier, pending: RequestFuture[str], refused: list[RuntimeError]) -> None:
    start.wait()
    try:
        pending.complete("foo")
    except RuntimeError as error:
        refused.append(error)


def test_of_two_threads_that_end_a_future_one_gets_an_error() -> None:
    for _ in range(200):
        pending = future()
        listener = Listener(pending)
        start = threading.Barrier(2)
        refused: list[RuntimeError] = []

        threads = [threading.Thread(target=complete_at, args=(start, pending, refused)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert listener.values == ["foo"]

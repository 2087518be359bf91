"""``admin.brokers``: a search among brokers ends in time, and goes on to whoever can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bridge.testing.fake_cluster import CLUSTER_ID, FakeCluster
from zkconsumer.admin.broker_client import BROKER_TIMEOUT_MS_MIN, CONNECT_TIMEOUT_MS, SEARCH_TIMEOUT_MS, BrokerClient
from zkconsumer.base.clock import Clock
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.kafka.metadata_client import fetch_cluster_id
from zkconsumer.kafka.transport import Transport, fill_by_receiving
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress

WITHOUT_ID = "0.8.2.2"
WITH_ID = "3.9.1"


class SwallowsPackets:
    """A transport to a machine that is gone; waiting for it takes the time that it is given."""

    def __init__(self, clock: ManualClock, *, accepts: bool) -> None:
        self._clock = clock
        self._accepts = accepts

    def open(self, deadline_ms: int) -> None:
        if not self._accepts:
            self._time_out(deadline_ms)

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        pass

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        self._time_out(deadline_ms)
        return 0

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        self._clock.move(max(0, deadline_ms - self._clock.now_ms()))
        return False

    def abort(self) -> None:
        pass

    def release(self) -> None:
        pass

    def _time_out(self, deadline_ms: int) -> None:
        self.wait(deadline_ms)
        raise TimeoutError


class Net:
    """Brokers of a cluster, behind some that are gone; time passes only where somebody waits."""

    def __init__(self, gone: int, releases: Sequence[str] = (), *, accepts: bool = False) -> None:
        self.clock = ManualClock()
        self.began_ms = self.clock.now_ms()
        self.asked: list[str] = []
        self._accepts = accepts
        self.cluster = FakeCluster(len(releases), release=dict(enumerate(releases)), clock=self.clock)
        self.addresses = [
            *(BrokerAddress(100 + n, f"gone-{n}.fake.invalid", 9092) for n in range(gone)),
            *self.cluster.addresses,
        ]
        self.brokers = BrokerClient(lambda: self.addresses, self._connect, self.clock, client_id="test")

    @property
    def took_ms(self) -> int:
        return self.clock.now_ms() - self.began_ms

    def _connect(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "",
        connect_timeout_ms: int = 0,
        receive_buffer_bytes: int = 0,
    ) -> Connection:
        self.asked.append(host)

        def transport(host: str, port: int, size: int, clock: Clock) -> Transport:
            if host.startswith("gone"):
                return SwallowsPackets(self.clock, accepts=self._accepts)
            return self.cluster.transport(host, port, size, clock)

        return BlockingConnection(
            host, port, connect_timeout_ms=connect_timeout_ms, transport=transport, clock=self.clock
        )


QUESTIONS: list[Callable[[BrokerClient], object]] = [
    lambda brokers: brokers.leaders(None),
    lambda brokers: brokers.execute_on_any(fetch_cluster_id, is_conclusive=bool),
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("accepts", [False, True])
@pytest.mark.parametrize("gone", [1, 2, 5, 15, 100])
def test_however_many_brokers_are_gone_the_search_ends_in_time(
    gone: int, accepts: bool, question: Callable[[BrokerClient], object]
) -> None:
    net = Net(gone, accepts=accepts)
    with pytest.raises(BrokerUnreachable) as it:
        question(net.brokers)
    assert net.took_ms <= SEARCH_TIMEOUT_MS
    among = str(gone) if gone <= 15 else f"the first 15 of {gone}"
    assert str(it.value).startswith(f"none of {among} brokers answers; the last one: gone-")
    assert "the broker hangs, is overloaded, or a firewall drops the packets" in str(it.value), "who must act"


def test_one_that_is_gone_is_given_no_more_than_it_was_before() -> None:
    net = Net(1)
    with pytest.raises(BrokerUnreachable):
        net.brokers.leaders(None)
    assert net.took_ms == CONNECT_TIMEOUT_MS


@pytest.mark.parametrize("gone", [1, 5, 14])
def test_those_that_swallow_packets_leave_time_for_the_one_that_answers(gone: int) -> None:
    net = Net(gone, [WITH_ID])
    assert net.brokers.leaders(None).brokers.keys() == {0}
    assert net.took_ms <= SEARCH_TIMEOUT_MS - BROKER_TIMEOUT_MS_MIN
    before_ms = net.took_ms
    net.brokers.leaders(None)
    assert net.took_ms == before_ms, "who has answered is asked first"


def test_the_first_answer_that_tells_is_taken() -> None:
    net = Net(1, [WITHOUT_ID, WITH_ID, WITH_ID])
    assert net.brokers.execute_on_any(fetch_cluster_id, is_conclusive=bool) == CLUSTER_ID
    assert net.asked == [one.host for one in net.addresses[:3]]


def test_where_all_answer_and_none_tells_that_is_the_answer() -> None:
    net = Net(0, [WITHOUT_ID, WITHOUT_ID])
    assert net.brokers.execute_on_any(fetch_cluster_id, is_conclusive=bool) is None
    assert len(net.asked) == 2


def test_one_that_was_not_heard_might_have_told() -> None:
    net = Net(1, [WITHOUT_ID, WITHOUT_ID])
    with pytest.raises(
        BrokerUnreachable, match=r"^1 of 3 brokers did not answer, and the others have no conclusive answer"
    ):
        net.brokers.execute_on_any(fetch_cluster_id, is_conclusive=bool)


def test_answers_that_take_all_the_time_end_the_search_too() -> None:
    net = Net(0, [WITHOUT_ID] * 3)

    def slow(*_: object) -> None:
        net.clock.move(SEARCH_TIMEOUT_MS // 2)

    with pytest.raises(BrokerUnreachable, match=r"^1 of 3 brokers did not answer.*the search ended after 15000 ms$"):
        net.brokers.execute_on_any(slow, is_conclusive=bool)


@pytest.mark.parametrize("gone", [1, 100])
def test_each_of_many_is_asked_in_bounded_time_and_who_was_not_is_told(gone: int) -> None:
    net = Net(gone, [WITHOUT_ID, WITH_ID])
    net.brokers.execute(net.cluster.address(1), lambda connection, ranges: None)
    told = net.brokers.execute_on_each(net.addresses, lambda connection, ranges, timeout_ms: ranges.is_assumed)
    assert net.took_ms <= SEARCH_TIMEOUT_MS
    assert list(told) == net.addresses
    assert told[net.cluster.address(1)] is False, "who has answered before is asked first"
    first, last = told[net.addresses[0]], told[net.cluster.address(0)]
    assert "no answer to connect" in str(first)
    if gone == 1:
        assert last is True
    else:
        assert str(last).endswith("it was not asked, because silent brokers used up 15000 ms; start those")

"""What the broker claims of each release, compared with a real one of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.broker.emulated_releases import EMULATED_RELEASES
from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import TIMEOUT_MS, RawClient, idempotent
from tests.sandbox_fixtures import require_releases, require_zookeeper
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

KRAFT = ("4.1.1",)
SHORT = ("1.1.1", "3.9.1")
"""Those of every run; the others are nightly."""

pytestmark = pytest.mark.real


@pytest.fixture(
    scope="module",
    params=[name if name in SHORT else pytest.param(name, marks=pytest.mark.nightly) for name in EMULATED_RELEASES],
)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[str, BrokerAddress]]:
    """A release, and where a real broker of it answers."""
    name: str = request.param
    require_releases(name)
    require_zookeeper()
    with Sandbox() as sandbox:
        if name in KRAFT:
            broker = sandbox.start_kraft_broker(name)
        else:
            sandbox.start_zookeeper()
            broker = sandbox.start_broker(name)
        sandbox.create_topic("t")
        sandbox.create_topic("p")
        host, _, port = broker.address.partition(":")
        yield name, BrokerAddress(0, host, int(port))


def test_the_versions_are_those_of_the_real_broker(real: tuple[str, BrokerAddress]) -> None:
    name, address = real
    connection = BlockingConnection(address.host, address.port, client_id="c")
    told = negotiate(connection, TIMEOUT_MS)
    connection.close()
    if not told.is_assumed:
        assert {key: tuple(told.ranges[key]) for key in EMULATED_RELEASES[name].ranges} == {
            key: tuple(known) for key, known in EMULATED_RELEASES[name].ranges.items()
        }


def refusals(talk: RawClient, version: int) -> dict[str, int | str]:
    """How it calls what it does not store; some releases end the connection."""

    def send(records: bytes) -> int | str:
        try:
            return talk.produce("t", 0, version=version, records=records).error_code
        except BrokerUnreachable:
            return "ends the connection"

    good = build_record_set([Record(0, 1_000, 0, None, b"v")], 2 if version >= 3 else version // 2)
    newer = build_record_set([Record(0, 1_000, 0, None, b"v")], 2)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    sent = {"flipped": bytes(flipped), "cut": good[:-1], "nothing": b"", "good": good}
    if version < 3:
        sent["newer"] = newer
    else:
        sent |= {"two batches": newer + newer, "older": build_record_set([Record(0, 1_000, 0, None, b"v")], 1)}
    return {what: send(data) for what, data in sent.items()}


def test_what_is_refused_is_refused_with_the_same_error(real: tuple[str, BrokerAddress]) -> None:
    name, address = real
    version = {"0.9.0.1": 1, "0.10.2.2": 2, "0.11.0.3": 3}.get(name, 5)
    with EmbeddedBroker(release=name) as ours, RawClient(ours.addresses()[0]) as mine, RawClient(address) as theirs:
        ours.create_topic("t")
        assert refusals(mine, version) == refusals(theirs, version)


def sequences(talk: RawClient, version: int) -> dict[str, tuple[int, int]]:
    """What becomes of an idempotent producer's batches: error code and base offset."""

    def send(producer: int, epoch: int, sequence: int) -> tuple[int, int]:
        records = idempotent(producer, sequence, b"v", epoch)
        row = talk.produce("p", 0, version=version, records=records)
        return row.error_code, row.base_offset

    for sequence in range(7):
        assert send(1, 0, sequence)[0] == 0
    return {
        "again": send(1, 0, 6),
        "long ago": send(1, 0, 0),
        "a gap": send(1, 0, 9),
        "a new epoch not from 0": send(1, 1, 3),
        "a new epoch": send(1, 1, 0),
        "an old epoch": send(1, 0, 7),
        "unknown and not from 0": send(2, 0, 5),
        "the next of that": send(2, 0, 6),
    }


def test_idempotent_producers_are_told_the_same(real: tuple[str, BrokerAddress]) -> None:
    name, address = real
    version = {"0.11.0.3": 3}.get(name, 5)
    if EMULATED_RELEASES[name].magic < 2:
        pytest.skip("there are no idempotent producers before 0.11")
    with EmbeddedBroker(release=name) as ours, RawClient(ours.addresses()[0]) as mine, RawClient(address) as theirs:
        ours.create_topic("p")
        assert sequences(mine, version) == sequences(theirs, version)

"""Until when a coordinator's member hands records out: which answers say that it is still one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.client.coordinator_event_loop import CoordinatorEventLoop, NetworkAnswer
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.kafka.group.commands import Send
from zkconsumer.kafka.group.events import Responded
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, SYNC_GROUP

SESSION_MS, SENT_AT_MS = 3_000, 10_000
EXTENDED = SENT_AT_MS + 2_000


def lease_after(api_key: int, code: int, version: int) -> int:
    clock = ManualClock()
    lease = Lease(clock)
    heartbeat = SimpleNamespace(poll_timeout_expired=lambda now_ms: False)
    machine = SimpleNamespace(handle=lambda event, now_ms: [], heartbeat=heartbeat)
    control = CoordinatorEventLoop(cast("Any", machine), SESSION_MS, lease, clock)
    control._concerned = cast("Any", SimpleNamespace(answered=lambda answer: None))
    body = SimpleNamespace(error_code=code)
    control.handle_event(NetworkAnswer(Responded(1, body, version), Send(1, 0, api_key, None, 1_000), SENT_AT_MS))
    return lease.until_ms


@pytest.mark.parametrize(
    ("api_key", "code", "version", "until_ms"),
    [
        (HEARTBEAT.key, 0, 0, EXTENDED),
        (HEARTBEAT.key, 27, 1, EXTENDED),
        (HEARTBEAT.key, 25, 4, 0),
        (SYNC_GROUP.key, 0, 0, EXTENDED),
        (SYNC_GROUP.key, 27, 3, 0),
        (JOIN_GROUP.key, 0, 3, 0),
    ],
)
def test_what_a_coordinator_takes_from_us_as_a_member_extends_the_lease(
    api_key: int, code: int, version: int, until_ms: int
) -> None:
    assert lease_after(api_key, code, version) == until_ms


def test_a_broker_that_answers_27_to_anybody_extends_no_lease() -> None:
    """0.9 does, also to a member that it has dropped; its partitions may be somebody else's in a moment."""
    assert lease_after(HEARTBEAT.key, 27, 0) == 0

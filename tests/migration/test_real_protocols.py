"""A group whose offsets are in a ZooKeeper of its own moves to KRaft brokers, where clients of KIP-848 come, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import Sandbox, wait_until, zookeeper_release

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PARTITIONS = 3
RECORDS = 3_000
KIP_848 = {"group.protocol": "consumer"}
STORED = {0: 10, 1: 20, 2: 30}


@pytest.fixture
def moving(names: tuple[str, str], tmp_path: Path) -> Iterator[RealGroup]:
    """A group as members left it that kept their offsets in ZooKeeper."""
    require_releases("4.1.1", zookeeper_release("3.8"))
    group, topic = names
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_kraft_broker("4.1.1")
        made = RealGroup(sandbox, group, topic, PARTITIONS, tmp_path)
        made.produce(RECORDS)
        admin = sandbox.admin
        admin.ensure_path(f"/consumers/{group}/ids")
        for number, offset in STORED.items():
            admin.put(f"/consumers/{group}/offsets/{topic}/{number}", b"%d" % offset)
        yield made
        made.close()


CLIENTS = [
    ("java-4.1.1", "GroupIdNotFoundException"),
    pytest.param("confluent", "_FATAL", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("client", "told"), CLIENTS)
def test_a_client_of_kip_848_cannot_join_beside_the_placeholder(moving: RealGroup, client: str, told: str) -> None:
    plan = moving.plan("--offset-convention", "next")
    moving.migrate("apply", plan, "--execute", "--stop-after", "verified")
    before = moving.stores()
    early = moving.modern("early", "early", client, KIP_848)
    wait_until(lambda: any(told in str(event) for event in early.events), "it is refused", 30_000)
    assert moving.handed("early").total() == 0
    assert moving.stores() == before
    early.close()

    # After the cut-over the group uses the consumer protocol, and continues where the old one stopped.
    moving.migrate("apply", *moving.kept, "--execute")
    moving.modern("modern", "new-1", client, KIP_848)
    moving.modern("modern", "new-2", "java-4.1.1", KIP_848)
    moving.wait_delivered("modern", RECORDS - sum(STORED.values()))
    assert moving.first_handed("modern") == STORED
    refused = moving.migrate("rollback", moving.group, "--execute", "--timeout", "1", expect=6)
    assert "leave the coordinator group" in refused.stderr
    moving.stop("modern")
    moving.migrate("rollback", moving.group, "--execute")
    assert moving.in_zookeeper() == moving.ends()

"""Tools on worlds in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from zkconsumer.admin.session import AdminSession, Doors
from zkconsumer.cli.main import main
from zkconsumer.testing.world import ADDRESS, FakeWorld

RunTool = Callable[..., Result]


def doors(world: FakeWorld) -> Doors:
    """How a tool reaches this world."""
    return Doors(store=world.store, connect=world.cluster.connect)


@pytest.fixture
def admin(world: FakeWorld) -> Iterator[AdminSession]:
    """A tool's session in the world of the test."""
    with AdminSession.open(ADDRESS, None, doors(world)) as session:
        yield session


@pytest.fixture
def tool(world: FakeWorld) -> RunTool:
    """Runs ``zkconsumer <words>`` against the world of the test."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--zookeeper", ADDRESS], obj=doors(world))

    return run

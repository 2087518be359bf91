"""What the tests of this folder share: clusters that are started when they are first needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.crash.crash_rounds import Clusters


@pytest.fixture(scope="session")
def crash_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """One cluster for each release of brokers."""
    made = Clusters(tmp_path_factory.mktemp("crash"))
    yield made
    made.close()

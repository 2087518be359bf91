"""The fixtures of every test: one file a concern."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")
# Hypothesis' own deadline of 200 ms for an example fails on a machine that runs something else.

pytest_plugins = [
    "tests.in_memory_fixtures",
    "tests.zk_procedure_fixtures",
    "tests.sandbox_fixtures",
    "tests.coordinator_group_fixtures",
    "tests.admin_fixtures",
    "tests.secured_zookeeper_fixtures",
    "tests.fake_kerberos",
    "tests.simulation_seeds",
    "tests.spark_session_fixtures",
    "tests.postgres_fixtures",
    "tests.registry_fixtures",
    "tests.spark_cluster_fixtures",
    "tests.migration.placeholder_fixtures",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage meanwhile, and none of what is there then: modules and tests stay until the end.

    There are some millions of such objects, and Python would look at them again and again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

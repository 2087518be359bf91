"""Spark queries as members of ZooKeeper consumer groups: ``format("zkconsumer")``.

    import bridge.spark
    bridge.spark.register(spark)             # not needed where the package is installed: Spark finds it
    bridge.spark.check_environment(spark)    # a small job: can every executor run it?

The names below are loaded when they are first used, so that a worker loads only the code that reads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.spark.handoff.available_now import run_available_now
    from bridge.spark.handoff.offset_projector import GroupOffsetProjector
    from bridge.spark.handoff.starting_offsets import starting_offsets
    from bridge.spark.monitoring.lag_listener import ZkConsumerListener
    from bridge.spark.monitoring.query_lag import lag
    from bridge.spark.source.datasource_registration import register
    from bridge.spark.source.environment_check import check_environment

_HOMES = {
    "GroupOffsetProjector": "bridge.spark.handoff.offset_projector",
    "ZkConsumerListener": "bridge.spark.monitoring.lag_listener",
    "check_environment": "bridge.spark.source.environment_check",
    "lag": "bridge.spark.monitoring.query_lag",
    "register": "bridge.spark.source.datasource_registration",
    "run_available_now": "bridge.spark.handoff.available_now",
    "starting_offsets": "bridge.spark.handoff.starting_offsets",
}

__all__ = [
    "GroupOffsetProjector",
    "ZkConsumerListener",
    "check_environment",
    "lag",
    "register",
    "run_available_now",
    "starting_offsets",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bridge.spark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

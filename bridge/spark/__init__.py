"""Feeding Spark from ZooKeeper consumer groups: ``format("zkconsumer")``.

    import bridge.spark
    bridge.spark.register(spark)             # where the package is installed, Spark finds it by itself
    bridge.spark.check_environment(spark)    # a small job: can every executor run it?

The names below are loaded when they are first used, so that a worker loads only what reads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.spark.environment import check_environment
    from bridge.spark.listener import ZkConsumerListener
    from bridge.spark.progress import lag
    from bridge.spark.projector import GroupOffsetProjector
    from bridge.spark.registration import register
    from bridge.spark.running import run_available_now
    from bridge.spark.starting import starting_offsets

_HOMES = {
    "GroupOffsetProjector": "bridge.spark.projector",
    "ZkConsumerListener": "bridge.spark.listener",
    "check_environment": "bridge.spark.environment",
    "lag": "bridge.spark.progress",
    "register": "bridge.spark.registration",
    "run_available_now": "bridge.spark.running",
    "starting_offsets": "bridge.spark.starting",
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

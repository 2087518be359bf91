"""Spark queries as members of ZooKeeper consumer groups: ``format("zkconsumer")``.

    import bridge.spark
    bridge.spark.register(spark)             # not needed where the package is installed: Spark finds it
    bridge.spark.check_environment(spark)    # a small job: can every executor run it?

The names below are loaded when they are first used, so that a worker loads only the code that reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from bridge.spark.handoff.available_now import run_available_now
    from bridge.spark.handoff.offset_projector import GroupOffsetProjector
    from bridge.spark.handoff.starting_offsets import starting_offsets
    from bridge.spark.monitoring.lag_listener import ZkConsumerListener
    from bridge.spark.monitoring.query_lag import lag
    from bridge.spark.source.datasource_registration import register
    from bridge.spark.source.environment_check import check_environment

_MODULE_BY_NAME = {
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(__name__, _MODULE_BY_NAME)

"""Runs a pipeline in a test's Spark session until it has read what is there."""

from __future__ import annotations

from bridge.spark.pipeline.pipeline_query import (
    PipelineFailedError,
    PreparedPipeline,
    RunningPipeline,
    start_pipeline,
)
from tests.spark_session_fixtures import STARTS_MAX, TOO_SLOW
from zkconsumer.base.clock import SYSTEM_CLOCK

END_MS = 240_000


def run_to_end(prepared: PreparedPipeline) -> RunningPipeline:
    """The pipeline after its last batch; started again where Spark gave up on the process of its source too early."""
    for left in reversed(range(STARTS_MAX)):
        running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms)
        try:
            assert running.wait(END_MS), "the pipeline has not ended"
        except PipelineFailedError as error:
            if TOO_SLOW not in str(error) or not left:
                raise
        else:
            return running
        finally:
            running.query.stop()
    raise AssertionError("the last start returns or raises")

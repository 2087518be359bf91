"""The error of a pipeline whose source fails: the sentence, and not what Spark and Python print around it."""

from __future__ import annotations

import traceback

import pytest

from bridge.spark.pipeline.source_error import source_sentence
from bridge.spark.source.error_rendering import sentence_first
from zkconsumer.errors import PipelineAlreadyRunning

SPARK = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON] perform latestOffset: "


@sentence_first
def fails() -> None:
    raise PipelineAlreadyRunning("another pipeline reads group g1: clicks: who. End it")


def test_the_sentence_of_the_source_is_found_in_what_python_prints() -> None:
    with pytest.raises(PipelineAlreadyRunning) as caught:
        fails()
    printed = "".join(traceback.format_exception(caught.value))
    wanted = "another pipeline reads group g1: clicks: who. End it"
    assert source_sentence(f"{SPARK}{printed}") == wanted
    assert source_sentence(f"{SPARK}Traceback (most recent call last):\n{printed} SQLSTATE: 38000") == wanted


@pytest.mark.parametrize("text", ["", SPARK, f"{SPARK}\nValueError: zkconsumer is missing", "at zkconsumer.errors: x"])
def test_an_error_that_is_not_of_this_project_has_no_sentence(text: str) -> None:
    assert source_sentence(text) is None

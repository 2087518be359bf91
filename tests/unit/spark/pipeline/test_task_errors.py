"""The error of a task, from the text of Spark's exception: its sentence, its class, and so who must act."""

from __future__ import annotations

import traceback

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from pyspark.errors import PythonException, StreamingQueryException

from bridge.spark.pipeline.decode.schema_registry import SchemaRegistryRefused, SchemaRegistryUnavailable
from bridge.spark.pipeline.task_errors import error_of_task, errors_of_tasks, failure_line, sentence_of
from bridge.spark.source.error_rendering import sentence_first
from zkconsumer.errors import LogTruncationException, OffsetOutOfRangeException, PipelineAlreadyRunning, UsageError

REGISTRY = "bridge.spark.pipeline.decode.schema_registry"
FRAMES = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/arrow_decoding.py", line 65, in __call__
    raise
"""
JVM = """
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def of_worker(lines: str) -> PythonException:
    return PythonException(f"{FRAMES}{lines}{JVM}")


def test_the_error_of_a_task_has_its_class_and_its_sentence() -> None:
    for kind, words in ((SchemaRegistryUnavailable, "the registry is silent"), (SchemaRegistryRefused, "a wrong URL")):
        found = error_of_task(of_worker(f"{REGISTRY}.{kind.__name__}: {words}"))
        assert type(found) is kind
        assert str(found) == words


@sentence_first
def _source_fails() -> None:
    raise PipelineAlreadyRunning("another pipeline reads group g1: clicks: who. End it")


def test_the_error_of_the_source_has_its_class_and_its_sentence() -> None:
    with pytest.raises(PipelineAlreadyRunning) as caught:
        _source_fails()
    printed = "".join(traceback.format_exception(caught.value))
    spark = "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON] perform latestOffset: "
    for text in (f"{spark}{printed}", f"{spark}Traceback (most recent call last):\n{printed} SQLSTATE: 38000"):
        found = error_of_task(StreamingQueryException(text))
        assert type(found) is PipelineAlreadyRunning
        assert str(found) == "another pipeline reads group g1: clicks: who. End it"


def test_of_an_error_and_its_cause_the_error_counts() -> None:
    cause = f"{REGISTRY}.SchemaRegistryRefused: the cause\n\nThe above exception was the direct cause of the next:\n\n"
    found = error_of_task(of_worker(f"{cause}{FRAMES}{REGISTRY}.SchemaRegistryUnavailable: the error"))
    assert str(found) == "the error"


def test_an_error_whose_constructor_needs_more_than_a_text_keeps_its_exit_code() -> None:
    assert issubclass(LogTruncationException, OffsetOutOfRangeException)
    found = error_of_task(of_worker("zkconsumer.errors.LogTruncationException: the log was cut"))
    assert (type(found), str(found)) == (UsageError, "the log was cut")


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'x'",
        "bridge.no.such.module.Wrong: text",
        "zkconsumer.errors.NoSuchError: text",
        "zkconsumer.errors.annotations: text",
        "somewhere.bridge.Wrong: text",
    ],
)
def test_another_error_is_none_of_this_project(line: str) -> None:
    assert error_of_task(of_worker(line)) is None


def test_an_exception_that_is_not_of_spark_is_none_of_a_task() -> None:
    assert error_of_task(ValueError(f"{REGISTRY}.SchemaRegistryRefused: text")) is None


def test_what_an_operator_reads_is_a_sentence_the_end_of_a_trace_or_the_first_line() -> None:
    assert failure_line(of_worker(f"{REGISTRY}.SchemaRegistryRefused: a wrong URL")) == "a wrong URL"
    cause = "OSError: disk\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert failure_line(of_worker(f"{cause}{FRAMES}ModuleNotFoundError: No module named 'zkconsumer'")) == (
        "ModuleNotFoundError: No module named 'zkconsumer'"
    )
    assert failure_line(of_worker("MemoryError")) == "MemoryError"
    assert failure_line("Job aborted. SQLSTATE: X\n\tat org.apache.Foo: bar") == "Job aborted."
    assert failure_line("PythonException: Traceback (most recent call last):\n") == (
        "PythonException: Traceback (most recent call last):"
    )


def test_within_errors_of_tasks_only_errors_of_this_project_are_replaced() -> None:
    with pytest.raises(SchemaRegistryRefused, match=r"^a wrong URL$") as raised, errors_of_tasks():
        raise of_worker(f"{REGISTRY}.SchemaRegistryRefused: a wrong URL")
    assert isinstance(raised.value.__cause__, PythonException)
    with pytest.raises(PythonException), errors_of_tasks():
        raise of_worker("KeyError: 'x'")
    with pytest.raises(ValueError, match="x"), errors_of_tasks():
        raise ValueError("x")


def test_a_text_without_a_sentence_has_none() -> None:
    assert sentence_of("") is None
    assert sentence_of(f"  {REGISTRY}.SchemaRegistryRefused: within a line of code") is None

"""``error_of_task``: the error of this project in the text of Spark's exception, of a task or of the source.

    task: SchemaRegistryUnavailable --Spark--> PythonException, text: frames, "bridge.….SchemaRegistryUnavailable: …"
                                               --error_of_task--> SchemaRegistryUnavailable("…")

A task runs in another process, often on another machine, so its exception arrives as text: the frames first, the
sentence last, then the frames of the JVM.  Without this module an operator would read "An exception was thrown from the
Python worker", and the exit code of the command would not say who must act.

The source runs in another process, too.  It prints its sentence first (``error_rendering``), in the line that Spark has
begun:

    [STREAM_FAILED] Query [id = …] terminated with exception: … zkconsumer.errors.PipelineAlreadyRunning: another …

Where an exception has a cause, Python prints the cause first; so the last sentence is that of the error itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from pyspark.errors import PySparkException

from bridge.spark.pipeline.decode.decode_plan import first_line
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError, ZkConsumerError

ERROR_CLASSES: tuple[type[ZkConsumerError], ...] = (UsageError, PreconditionFailed, UnavailableError)
"""An error whose class cannot be made from a text gets the class here that has its exit code; the last one, if none
has it."""

_SENTENCE = re.compile(r"^(?:.*?: )??((?:zkconsumer|bridge)\.[\w.]+)\.(\w+): (.+)$", re.MULTILINE)
_PYTHON_TRACE = "Traceback (most recent call last):"
_EXCEPTION_LINE = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)
_FRAMES_OF_JVM = "\n\tat "


@dataclass(frozen=True, slots=True)
class TaskSentence:
    """A line of a Python trace: the class of an error of this project, and its text."""

    module: str
    name: str
    text: str


def sentence_of(words: str) -> TaskSentence | None:
    """The last error of this project in a text of Spark's; None: there is none."""
    found = _SENTENCE.findall(words)
    if not found:
        return None
    module, name, text = found[-1]
    return TaskSentence(module, name, text.strip())


def error_of_task(error: BaseException) -> ZkConsumerError | None:
    """The error of this project in an exception of Spark; None: it has none, or is no exception of Spark."""
    if not isinstance(error, PySparkException):
        return None
    sentence = sentence_of(str(error))
    if sentence is None:
        return None
    kind = _class_of(sentence)
    if kind is None:
        return None
    try:
        return kind(sentence.text)
    except TypeError:  # its constructor needs more than a text
        return base_with(kind.exit_code)(sentence.text)


def base_with(exit_code: int) -> type[ZkConsumerError]:
    """The class of ``ERROR_CLASSES`` with this exit code."""
    return next((each for each in ERROR_CLASSES if each.exit_code == exit_code), ERROR_CLASSES[-1])


def failure_line(error: Exception | str) -> str:
    """What to show of an exception of Spark: a sentence of this project, the last line of a Python trace, or the first
    line."""
    sentence = sentence_of(str(error))
    if sentence is not None:
        return sentence.text
    _, head, trace = str(error).partition(_PYTHON_TRACE)
    lines = _EXCEPTION_LINE.findall(trace.partition(_FRAMES_OF_JVM)[0]) if head else []
    return lines[-1] if lines else first_line(error)


@contextmanager
def errors_of_tasks() -> Iterator[None]:
    """Raises ``error_of_task`` instead of an exception of Spark that has one."""
    try:
        yield
    except PySparkException as error:
        found = error_of_task(error)
        if found is None:
            raise
        raise found from error


def _class_of(sentence: TaskSentence) -> type[ZkConsumerError] | None:
    try:
        kind = getattr(import_module(sentence.module), sentence.name, None)
    except ImportError:
        return None
    return kind if isinstance(kind, type) and issubclass(kind, ZkConsumerError) else None

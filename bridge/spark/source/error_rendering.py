"""Renders this package's errors and log lines in Spark: the sentence of an error before its stack trace, and log lines
with a prefix.

A sentence from a shared module names a broker setting as in a consumer's file (``bootstrap.servers``).  An error that
the driver raises names the Spark option instead (``kafka.bootstrap.servers``).

Spark converts an exception of a Python source to text as Python prints it: frames first, the sentence last.  After it
Spark adds its own lines.  So the sentence is in the middle of ``str(exception)``, and a page or an alert that truncates
a long text does not show it.

In what a stream does for each batch this module uses Python's order: Python prints the deepest cause of an exception
first.  So the error gets its own sentence as a cause without frames, and the trace stays complete.  When Spark plans a
batch, and in a task, Spark removes causes together with the frames of its own code
(``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled``, 4.2 and 4.3), but not notes, which Python prints after
the sentence: there the error is raised without its frames, and a note contains them.  For wrong options the frames
contain no information, so they are omitted.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from zkconsumer.errors import InvalidConfigException, ZkConsumerError

CHAIN_MAX = 50
"""The maximum depth of causes that are searched."""

TRACE_HEAD = "Where it was raised:"

NO_TRACES = "SPARK_HIDE_TRACEBACK"
"""Spark sets it for its workers when tracebacks shall be short."""

P = ParamSpec("P")
R = TypeVar("R")


def sentence_first(call: Callable[P, R]) -> Callable[P, R]:
    """A function whose every ``ZkConsumerError`` is printed with its sentence first; others stay unchanged."""

    @wraps(call)
    def rendering(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except InvalidConfigException as error:
            _name_options(error)
            _sentence_first(error)
            raise error.with_traceback(None) from error.__cause__
        except ZkConsumerError as error:
            _name_options(error)
            _sentence_first(error)
            raise

    return rendering


def sentence_before_traceback(call: Callable[P, R]) -> Callable[P, R]:
    """As ``sentence_first``, for calls where Spark removes causes."""

    @wraps(call)
    def rendering(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except ZkConsumerError as error:
            _name_options(error)
            _frames_behind(error)
            raise error.with_traceback(None) from error.__cause__

    return rendering


def task_sentence_before_traceback(call: Callable[P, R]) -> Callable[P, R]:
    """As ``sentence_before_traceback``, for calls in executors, which may lack the packages that options need."""

    @wraps(call)
    def rendering(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except ZkConsumerError as error:
            _frames_behind(error)
            raise error.with_traceback(None) from error.__cause__

    return rendering


def iterate_sentence_before_traceback(pieces: Iterator[R]) -> Iterator[R]:
    """The pieces; an error among them is rendered as in ``sentence_before_traceback``."""
    try:
        yield from pieces
    except ZkConsumerError as error:
        _frames_behind(error)
        raise error.with_traceback(None) from error.__cause__


def configure_log_prefix(group: str) -> None:
    """Log lines of this process begin with time, level and group, as those of the membership process do, unless logging
    is already configured.  Spark starts the planning processes without a logging configuration: Python then prints bare
    messages."""
    if logging.lastResort is not None:
        head = f"%(asctime)s %(levelname)s query[{group}] %(name)s: %(message)s"
        logging.lastResort.setFormatter(logging.Formatter(head))


def _name_options(error: ZkConsumerError) -> None:
    """Only on the driver: the table of options needs packages that an executor may lack, so it is imported here."""
    from bridge.spark.option_table import with_option_names

    sentence = str(error)
    if (named := with_option_names(sentence)) != sentence:
        error.args = (named,)


def _sentence_first(error: ZkConsumerError) -> None:
    deepest: BaseException = error
    for _ in range(CHAIN_MAX):
        inner = deepest.__cause__ or (None if deepest.__suppress_context__ else deepest.__context__)
        if inner is None:
            break
        deepest = inner
    if not isinstance(deepest, _Sentence):
        name = {"__module__": type(error).__module__, "__qualname__": type(error).__qualname__}
        deepest.__cause__ = type("_Same", (_Sentence,), name)(str(error))


def _frames_behind(error: ZkConsumerError) -> None:
    if not isinstance(error, InvalidConfigException) and not os.environ.get(NO_TRACES):
        error.add_note(f"\n{TRACE_HEAD}\n{''.join(traceback.format_exception(error))}")
    _sentence_first(error)


class _Sentence(Exception):
    """Printed under the name of the error whose sentence it contains."""

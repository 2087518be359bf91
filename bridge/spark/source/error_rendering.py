"""What a person reads of ours in Spark: the sentence of an error before its stack trace, and log lines with a head.

A sentence of a shared part names a setting of the brokers as a consumer's file has it (``bootstrap.servers``).  What
the driver raises names the option in its place (``kafka.bootstrap.servers``).

Spark makes a text of a Python source's exception as Python prints it: frames first, the sentence last.  Behind it
Spark puts its own lines, so the sentence is in the middle of what ``str(exception)`` gives, and a page or an alert that
cuts a long text off does not show it.

In what a stream does for each batch Python's order is made use of: it prints the deepest cause of an exception first,
so the error gets its own sentence as a cause without frames, and nothing of the trace is lost.  When a batch is planned
and in a task Spark throws causes away, with the frames of its own
(``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled``, 4.2 and 4.3), but not notes, which Python prints
behind the sentence: there the error goes on without its frames, and has them as a note.  For wrong options, whose
frames tell nobody anything, they are left out.
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
"""So many causes of causes are looked at."""

TRACE_HEAD = "Where it was raised:"

NO_TRACES = "SPARK_HIDE_TRACEBACK"
"""Spark sets it for its workers where nobody wants to see frames."""

P = ParamSpec("P")
R = TypeVar("R")


def sentence_first(call: Callable[P, R]) -> Callable[P, R]:
    """A function whose every ``ZkConsumerError`` is told with its sentence first; other exceptions are left alone."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
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

    return told


def sentence_before_traceback(call: Callable[P, R]) -> Callable[P, R]:
    """The same where Spark throws causes away."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except ZkConsumerError as error:
            _name_options(error)
            _frames_behind(error)
            raise error.with_traceback(None) from error.__cause__

    return told


def iterate_sentence_before_traceback(pieces: Iterator[R]) -> Iterator[R]:
    """The pieces; an error among them as ``sentence_before_traceback`` tells it."""
    try:
        yield from pieces
    except ZkConsumerError as error:
        _frames_behind(error)
        raise error.with_traceback(None) from error.__cause__


def configure_log_prefix(group: str) -> None:
    """What is logged in this process, where nobody set logging up, begins with time, level and group, as the keeper's
    lines do.  Spark starts the processes that plan, and sets nothing up there: Python prints bare messages then."""
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
    """Printed under the name of the error that it says."""

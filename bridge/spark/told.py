"""What a person reads of ours in Spark: the sentence of an error before its stack trace, and log lines with a head.

Spark makes a text of a Python source's exception as Python prints it: frames first, the sentence last.  Behind it
Spark puts its own lines, so the sentence is in the middle of what ``str(exception)`` gives, and a page or an alert that
cuts a long text off does not show it.

In what a stream does for each batch Python's order is made use of: it prints the deepest cause of an exception first,
so the error gets its own sentence as a cause without frames, and nothing of the trace is lost.  Elsewhere Spark
throws causes away (``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled``, 4.2 and 4.3); for wrong options,
whose frames tell nobody anything, the frames are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from zkconsumer.errors import InvalidConfigException, ZkConsumerError

CHAIN_MAX = 50
"""So many causes of causes are looked at."""

P = ParamSpec("P")
R = TypeVar("R")


def told_first(call: Callable[P, R]) -> Callable[P, R]:
    """A function whose every ``ZkConsumerError`` is told with its sentence first; other exceptions are left alone."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except InvalidConfigException as error:
            _sentence_first(error)
            raise error.with_traceback(None) from error.__cause__
        except ZkConsumerError as error:
            _sentence_first(error)
            raise

    return told


def head_for(group: str) -> None:
    """What is logged in this process, where nobody set logging up, begins with time, level and group, as the keeper's
    lines do.  Spark starts the processes that plan, and sets nothing up there: Python prints bare messages then."""
    if logging.lastResort is not None:
        head = f"%(asctime)s %(levelname)s query[{group}] %(name)s: %(message)s"
        logging.lastResort.setFormatter(logging.Formatter(head))


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


class _Sentence(Exception):
    """Printed under the name of the error that it says."""

"""The sentence of an error of the source in the text of an exception of Spark.  Pure.

Spark converts an exception of a Python source to text: lines of its own, then what Python prints.  The source puts the
sentence first there (``error_rendering``), under the name of its class:

    [STREAM_FAILED] Query [id = …] terminated with exception: … Traceback (most recent call last):
    zkconsumer.errors.PipelineAlreadyRunning: another pipeline reads group clicks: …

    The above exception was the direct cause of …
"""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"^(?:.*: )?(?:zkconsumer|bridge)\.[\w.]*\b[A-Z]\w*: (.+)$", re.MULTILINE)


def source_sentence(text: str) -> str | None:
    """The first line that is an error of this project, without the name of its class; None: there is none."""
    found = _SENTENCE.search(text)
    return None if found is None else found[1].strip()

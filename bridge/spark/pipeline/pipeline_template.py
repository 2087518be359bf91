"""The commented pipeline file of ``zkconsumer pipeline init``, made of the table of keys.  Pure.

Three kinds of lines: ``# sentence`` is a comment, ``#key = value`` a key that is not set, ``key = value`` one that is.
The file reads topics as text and writes parquet; it is complete but for the lines of ``EDITED``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from textwrap import wrap

from bridge.spark.pipeline.pipeline_key import PipelineKey, toml_text
from bridge.spark.pipeline.pipeline_keys import SECTIONS, keys_of

EDITED = ("zookeeper.connect", "subscribe")
"""The keys of ``source`` whose values a user must write."""

_WIDTH = 110
_LINK = re.compile(r"\[([^\[\]]+)\]\([^)]+\)")

_HEAD = """\
# A pipeline of zkconsumer: it reads a consumer group, decodes, transforms with SQL, and writes exactly one sink.
#
#   1. Edit the two lines that are marked with EDIT. To read an old group, set group.id to its name, too.
#   2. zkconsumer pipeline check FILE    shows the rows that would be written, and changes nothing.
#   3. zkconsumer pipeline run FILE
#
# A line that begins with # and a key shows its default or an example: remove the # to set it.
# Relative paths begin in the folder of this file. Passwords are never written here, only their places:
# "env:NAME" is a variable of the environment, "file:PATH" a file that contains only the password.
"""


def pipeline_template(name: str = "pipeline") -> str:
    """The text of a pipeline file.  ``name``: the name of the pipeline, of its group, and of its folder; letters,
    digits, ``.``, ``_`` and ``-``."""
    active = _active(name)
    return _HEAD + "".join(_section(section, active.get(section, {})) for section in SECTIONS)


def _active(name: str) -> Mapping[str, Mapping[str, str]]:
    """Section -> the keys that are set, with values as TOML."""
    return {
        "pipeline": {"name": toml_text(name)},
        "source": {
            **dict.fromkeys(EDITED, '""  # EDIT'),
            "group.id": toml_text(name),
            "auto.offset.reset": toml_text("smallest"),
        },
        "decode": {"format": toml_text("text")},
        "sink": {"format": toml_text("parquet"), "path": toml_text(f"{name}-data/rows")},
        "dead-letters": {"format": toml_text("parquet"), "path": toml_text(f"{name}-data/dead-letters")},
        "checkpoint": {"path": toml_text(f"{name}-data/checkpoint")},
    }


def _section(section: str, active: Mapping[str, str]) -> str:
    """The section with its keys; a second row of a key that is set, for another format, stays a comment."""
    lines = ["", "", *_comment(SECTIONS[section]), f"[{section}]"]
    left = dict(active)
    for key in keys_of(section):
        if key.is_in_template:
            is_active = key.name in left and key.is_valid_with(_format_of(active))
            lines += ["", *_key(key, left.pop(key.name) if is_active else None)]
    assert not left, f"the table has no key {', '.join(left)}"
    return "\n".join(lines) + "\n"


def _format_of(active: Mapping[str, str]) -> str | None:
    return active["format"].strip('"') if "format" in active else None


def _key(key: PipelineKey, value: str | None) -> Iterator[str]:
    yield from _comment(key.meaning)
    yield from _comment(_values(key))
    if value is not None:
        yield f"{key.name} = {value}"
    else:
        yield f"#{key.name} = {key.example or key.default_text}"


def _values(key: PipelineKey) -> str:
    """What can be set, and when."""
    default = f" Default: {key.default_text}." if key.default_text else ""
    rules = f" {key.rules}" if key.rules else ""
    return f"Value: {key.allowed}.{default}{rules}"


def _comment(text: str) -> list[str]:
    plain = _LINK.sub(r"\1", text.replace("`", ""))
    return [f"# {line}" for line in wrap(plain, _WIDTH, break_long_words=False, break_on_hyphens=False)]

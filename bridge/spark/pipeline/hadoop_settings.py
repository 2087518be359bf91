"""The section ``hadoop`` of a pipeline file: settings of Hadoop's file systems, under Hadoop's own names.  Pure.

    [hadoop]
    "fs.s3a.endpoint" = "https://s3.example:9000"
    "fs.s3a.secret.key" = "env:S3_SECRET"

One section for all folders of the file, since Hadoop has one configuration in a process; S3A has settings of a bucket
under names of their own (``fs.s3a.bucket.NAME.…``).  Names are not checked against a list: each file system has its
own, and those of an operator's file system are not known here.

A name that is that of a secret takes ``env:NAME`` or ``file:PATH`` only.  Any other name takes a text; ``env:NAME`` is
a secret there, too, for a name that is not recognized, and ``file:…`` is a text: the URI of a folder.

Spark shows Hadoop's settings in its UI and in the event log when a program adds a file or a jar, without the values of
names that ``spark.redaction.regex`` matches.  Its default does not match the keys of Azure and Google Cloud Storage, so
a session of this project has ``redaction_regex``, and ``shown_names`` finds what another session would show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bridge.spark.pipeline.pipeline_key import KeyKind
from bridge.spark.pipeline.secret_reference import SECRET_FORMS, MaybeSecret
from bridge.spark.pipeline.section_values import SectionValues
from bridge.spark.pipeline.toml_values import flat_keys, problem, secret_in_folder, text_of

SECTION = "hadoop"

REDACTION = "spark.redaction.regex"

SPARK_REDACTION = "(?i)secret|password|token|access[.]?key"
"""The default of ``REDACTION`` in Spark 4.2 and 4.3."""

OUR_REDACTION = f"{SPARK_REDACTION}|account[.-]?key|private[.-]?key|encryption[.-]?key|passphrase|credential[.-]?value"

_SECRET_NAME = re.compile(OUR_REDACTION)
_PLAIN_NAME = re.compile(
    r"[.-](?:provider|providers|binding|class|classes|impl|type|endpoint|path|file|keyfile|enabled|algorithm|kind)"
    r"(?:\.[^.]+\.(?:dfs|blob)\.core\..+)?\Z"
)
"""Names that contain the word of a secret and have the name of a class, a path or a switch as value; with the account
of Azure after it."""

_PREFIX = "spark.hadoop."


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting of Hadoop is a secret."""
    return _SECRET_NAME.search(name) is not None and _PLAIN_NAME.search(name) is None


def read_hadoop(table: Mapping[str, Any], folder: str, problems: list[str]) -> SectionValues:
    """The settings: texts and references of secrets; appends to ``problems``."""
    values: dict[str, MaybeSecret] = {}
    for name, value in flat_keys(table, ()):
        if name.startswith("spark."):
            words = f"write it without {_PREFIX}" if name.startswith(_PREFIX) else "set it for the Spark session"
            problems.append(problem(SECTION, name, f"is a setting of Spark, and not of Hadoop; {words}"))
            continue
        if name in values:
            problems.append(problem(SECTION, name, "is set twice, as a quoted and as a dotted key; remove one of them"))
            continue
        is_secret = is_secret_name(name)
        try:
            is_place = isinstance(value, str) and value.startswith("env:")
            values[name] = secret_in_folder(value, folder) if is_secret or is_place else text_of(value, KeyKind.TEXT)
        except ValueError as error:
            allowed = SECRET_FORMS if is_secret else "a text"
            problems.append(problem(SECTION, name, f"{error}; set it to {allowed}"))
    return SectionValues(SECTION, values, frozenset(values))


def secret_names(settings: Mapping[str, MaybeSecret]) -> list[str]:
    """The settings whose values are secrets, sorted."""
    return sorted(name for name, value in settings.items() if not isinstance(value, str))


def redaction_regex(names: Iterable[str]) -> str:
    """A value of ``REDACTION`` that matches the names of secrets of all file systems, and these."""
    others = [re.escape(name) for name in names if not _SECRET_NAME.search(name)]
    return "|".join([OUR_REDACTION, *others])


def shown_names(names: Iterable[str], regex: str) -> list[str]:
    """The names whose values a session with this ``REDACTION`` would show; all, if it is no regular expression here."""
    try:
        pattern = re.compile(regex)
    except re.error:
        return list(names)
    return [name for name in names if not pattern.search(name)]

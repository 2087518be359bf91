"""Values of a TOML document as texts of options, paths and references of secrets; and lines of problems.  Pure.

A problem is one line without the name of the file: ``[section] key: what is wrong; what to do``.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bridge.spark.pipeline.pipeline_key import KeyKind
from bridge.spark.pipeline.secret_reference import SecretReference, parse_secret

_URI = re.compile("[A-Za-z][A-Za-z0-9+.-]+:")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")


def problem(section: str, key: str, words: str) -> str:
    """One line; ``words``: what is wrong, and what to do."""
    return f"[{section}] {key}: {words}"


def text_of(value: Any, kind: KeyKind) -> str:
    """A TOML value as the text of an option.  Raises ``ValueError``, without the value."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list() if kind is KeyKind.COMMA_LIST and all(isinstance(each, str) for each in value):
            return ",".join(value)
        case dict() if kind is KeyKind.OFFSETS_JSON:
            try:
                return json.dumps(value)
            except TypeError:
                raise ValueError("it contains a value that JSON does not have") from None
    raise ValueError(f"it is {toml_type(value)}, and not a text")


def toml_type(value: Any) -> str:
    """The type of a TOML value, in words."""
    match value:
        case dict():
            return "a table"
        case list():
            return "a list"
        case str():
            return "a text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
    return "a date or a time"


def resolve_location(text: str, folder: str) -> str:
    """A path of the file; a relative one begins in ``folder``.  A URI is not changed."""
    return text if _URI.match(text) else _in_folder(text, folder)


def _in_folder(path: str, folder: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def local_folder(path: str) -> str | None:
    """A folder of the local file system, ``/data/rows`` or ``file:/data/rows``, without the scheme; None: another one.

    A path without a scheme is local, also with ``fs.defaultFS``.
    """
    found = _SCHEME.match(path)
    if found is None:
        return path
    return re.sub("^/+", "/", path[found.end() :]) if found[1].lower() == "file" else None


def secret_in_folder(value: Any, folder: str) -> SecretReference:
    """The reference of a secret; a relative file begins in ``folder``.  Raises ``ValueError``, without the value."""
    found = parse_secret(value)
    return SecretReference("file", _in_folder(found.place, folder)) if found.kind == "file" else found


def login_in_folder(login: str, folder: str) -> str:
    """``zookeeper.auth`` with a file in ``folder`` if its path is relative."""
    scheme, _, file = login.partition(":")
    is_file = scheme in ("digest", "sasl-digest-md5") and bool(file)
    return f"{scheme}:{_in_folder(file, folder)}" if is_file else login


def whole_names(names: Collection[str]) -> frozenset[str]:
    """The names, in lower case, below which no other name begins: a table there is a value."""
    lower = {name.lower() for name in names}
    return frozenset(name for name in lower if not any(other.startswith(f"{name}.") for other in lower))


def flat_keys(table: Mapping[str, Any], whole: Collection[str], before: str = "") -> Iterator[tuple[str, Any]]:
    """The keys with dots, and their values; a table that is the value of one of ``whole`` stays a table."""
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and value and name.lower() not in whole:
            yield from flat_keys(value, whole, f"{name}.")
        else:
            yield name, value

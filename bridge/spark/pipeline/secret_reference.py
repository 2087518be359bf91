"""``SecretReference``: the place of a secret, ``env:NAME`` or ``file:PATH``; it is read where it is used.  Pure.

    pipeline file --parse_secret--> SecretReference --resolve(environment, read_file)--> the secret, a text

A reference may be in a plan, a log or a ``repr``; the secret may not.  No error of this module contains a secret, or a
value that a user wrote where a reference belongs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from zkconsumer.errors import UsageError

SECRET_FORMS = '"env:NAME" (a variable of the environment) or "file:PATH" (a file that contains only the secret)'

ReadFile: TypeAlias = Callable[[str], bytes]
"""Reads the file of a path; raises ``OSError``."""

_FINAL_LINE_END = re.compile(r"\r?\n\Z")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class SecretUnavailableError(UsageError):
    """A secret of a pipeline cannot be read; the operator must set the variable, or provide the file."""


@dataclass(frozen=True, slots=True)
class SecretReference:
    """The place of a secret.  ``kind``: ``env`` or ``file``; ``place``: the name of a variable, or a path."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    def resolve(self, environment: Mapping[str, str], read_file: ReadFile) -> str:
        """The secret.  Of a file one line end at the end is removed.  Raises ``SecretUnavailableError``."""
        secret = self._in_environment(environment) if self.kind == "env" else self._in_file(read_file)
        if not secret:
            raise SecretUnavailableError(f"{self}: the secret is empty; the operator must set it")
        return secret

    def _in_environment(self, environment: Mapping[str, str]) -> str:
        if self.place not in environment:
            raise SecretUnavailableError(
                f"{self}: the environment has no variable {self.place}; the operator must export it before the start"
            )
        return environment[self.place]

    def _in_file(self, read_file: ReadFile) -> str:
        try:
            data = read_file(self.place)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise SecretUnavailableError(
                f"{self}: the file cannot be read ({why}); the operator must provide it on this "
                "machine, readable for the user of the pipeline"
            ) from error
        text = _decoded(data)
        if text is None:
            # Not raised where the decoding failed: a UnicodeDecodeError contains the bytes of the file.
            raise SecretUnavailableError(
                f"{self}: the file is not text in UTF-8; the operator must write the secret into it as text"
            )
        return _FINAL_LINE_END.sub("", text)


MaybeSecret: TypeAlias = str | SecretReference
"""The value of an option: a text, or the place of a secret."""


def parse_secret(value: object) -> SecretReference:
    """The reference in ``value``; raises ``ValueError``, whose text does not repeat the value."""
    kind, colon, place = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not colon or kind not in ("env", "file"):
        raise ValueError("the secret itself is written here")
    if kind == "env":
        if not _VARIABLE.fullmatch(place):
            raise ValueError("the text after env: is not the name of a variable (letters, digits and _)")
        return SecretReference(kind, place)
    if place.startswith("///"):  # as in a URL, file:///run/secrets/password
        place = place[2:]
    if not place or place.startswith(("//", "~")) or "\0" in place:
        raise ValueError("the text after file: is not a path (a ~ is not replaced)")
    return SecretReference(kind, place)


def resolve_secrets(
    values: Mapping[str, MaybeSecret], environment: Mapping[str, str], read_file: ReadFile
) -> dict[str, str]:
    """Options with every secret in its place.  Raises ``SecretUnavailableError`` with a line for each missing one."""
    resolved: dict[str, str] = {}
    problems: list[str] = []
    for name, value in values.items():
        try:
            resolved[name] = value if isinstance(value, str) else value.resolve(environment, read_file)
        except SecretUnavailableError as error:
            problems.append(f"{name}={error}")
    if problems:
        raise SecretUnavailableError("\n".join(problems))
    return resolved


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None

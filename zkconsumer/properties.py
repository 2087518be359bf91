"""Parses Java's ``.properties`` files as Java does.  Pure: from text to keys and values."""

from __future__ import annotations

import re

_BLANKS = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file, in the order of the file; of two equal keys the later value counts.

    Lines end with LF, CR or both.  Blank lines and lines that begin with ``#`` or ``!`` are skipped.  A backslash at
    the end joins the next line, whose leading blanks are removed.  A key ends at the first ``=``, ``:`` or blank
    without a backslash before it.  ``\\t \\n \\r \\f \\uXXXX`` are escapes; any other backslash is removed.

    Raises ``ValueError`` that names the line (from 1) when ``\\u`` is not followed by four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end = _end_of(_KEY, line, 0)
        value_start = _end_of(_SEPARATOR, line, key_end)
        key, value = _unescaped(line[:key_end], number), _unescaped(line[value_start:], number)
        properties.pop(key, None)
        properties[key] = value
    return properties


def decode_properties(data: bytes) -> str:
    """The text of a properties file: UTF-8 if valid, with or without a byte order mark; else Latin-1, as in Java."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines with their continuations joined, each with the number of its first line."""
    lines: list[tuple[int, str]] = []
    started: tuple[int, str] | None = None
    for number, natural in enumerate(_LINE_ENDS.split(text), start=1):
        stripped = natural.lstrip(_BLANKS)
        if started is None and (not stripped or stripped[0] in "#!"):
            continue
        first, before = started or (number, "")
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            started = (first, before + stripped[:-1])
        else:
            lines.append((first, before + stripped))
            started = None
    if started is not None:
        lines.append(started)
    return [(number, line) for number, line in lines if line]


def _end_of(pattern: re.Pattern[str], line: str, start: int) -> int:
    found = pattern.match(line, start)
    assert found is not None, "both patterns match an empty text"
    return found.end()


def _unescaped(text: str, line: int) -> str:
    def replaced(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ValueError(f"line {line}: \\u must be followed by four hexadecimal digits")
        return _ESCAPED_CHARACTERS.get(code, code)

    joined = _ESCAPE.sub(replaced, text)
    # An escaped surrogate pair is one character, as in UTF-16.
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

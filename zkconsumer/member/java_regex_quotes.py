r"""Replaces the quotes ``\Q...\E`` of a Java pattern: the text between them is literal.  Pure.

Java replaces quotes before it parses the pattern, also inside a class.  This module does the same, and it records the
original position of each character for error messages.
"""

from __future__ import annotations


def expand_regex_quotes(pattern: str) -> tuple[str, list[int]]:
    r"""Return the pattern without quotes, and the positions in ``pattern`` of each of its characters and of its end.

    Each quoted character gets a backslash, except ASCII letters and digits.  A ``\Q`` without ``\E`` quotes the rest.
    """
    text: list[str] = []
    places: list[int] = []

    def put(characters: str, place: int) -> None:
        text.extend(characters)
        places.extend([place] * len(characters))

    at, is_quoted, begins = 0, False, False
    while at < len(pattern):
        c, pair = pattern[at], pattern[at : at + 2]
        if is_quoted and pair == "\\E":
            is_quoted = False
            at += 2
        elif is_quoted:
            # A digit at the start of a quote must not become a part of the escape before the quote: \0\Q1\E.
            is_digit = begins and c.isascii() and c.isdigit()
            put(f"\\x3{c}" if is_digit else c if c.isascii() and c.isalnum() else f"\\{c}", at)
            at, begins = at + 1, False
        elif pair == "\\Q":
            is_quoted = begins = True
            at += 2
        elif c == "\\" and len(pair) == 2:
            put(c, at)
            put(pair[1], at + 1)
            at += 2
        else:
            put(c, at)
            at += 1
    return "".join(text), [*places, len(pattern)]

r"""``\Q...\E``: what stands between them is taken literally.  Pure.

Java replaces such quotes before it reads the pattern, wherever they stand, in the middle of a class as well; so they
are replaced here, too, character by character, and each character remembers its place.
"""

from __future__ import annotations


def expand_regex_quotes(pattern: str) -> tuple[str, list[int]]:
    r"""The pattern without quotes, and for each of its characters, and its end, the place in ``pattern``.

    In a quote everything but ASCII letters and digits gets a backslash.  A ``\Q`` without ``\E`` reaches to the end.
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
            # A digit right behind the quote must not become part of an escape in front of it, as in \0\Q1\E.
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

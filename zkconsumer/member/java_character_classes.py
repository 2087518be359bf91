r"""The predefined character classes of Java's regular expressions: ``\d``, ``\h``, ``\p{Alnum}``, ``\p{Lu}`` ...  Pure.

Every broker limits topic names to ASCII letters, digits, ``.``, ``_`` and ``-``, so a class is exact here when it is
exact for ASCII.  The Unicode classes contain only their ASCII part: releases of Java differ in the rest, and no topic
name contains such a character.
"""

from __future__ import annotations

import unicodedata

from zkconsumer.member.regex_tree import CodePointRanges, complement, merge_ranges

ASCII = range(0x80)

LINE_TERMINATORS: CodePointRanges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
"""The characters that ``.`` does not match."""

_DIGIT: CodePointRanges = ((0x30, 0x39),)
_WORD: CodePointRanges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: CodePointRanges = ((0x09, 0x0D), (0x20, 0x20))
"""Java's ``\\s`` contains the vertical tab, RE2's does not.  So patterns for RE2 list the characters of each class."""
_HORIZONTAL: CodePointRanges = (
    (0x09, 0x09), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
)  # fmt: skip
_VERTICAL: CodePointRanges = ((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029))

ESCAPE_CLASSES: dict[str, CodePointRanges] = {
    "d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL,
    "D": complement(_DIGIT), "W": complement(_WORD), "S": complement(_SPACE), "H": complement(_HORIZONTAL),
    "V": complement(_VERTICAL),
}  # fmt: skip
"""Letter after the backslash -> the characters of its class.  Java 7 had no ``\\h``, and its ``\\v`` was one character.
Topic names contain none of these characters, so the result is the same."""


def _characters_of(is_in: str) -> CodePointRanges:
    return merge_ranges([(ord(character), ord(character)) for character in is_in])


def _of_categories(*categories: str) -> CodePointRanges:
    """The ASCII characters whose Unicode general category starts with one of ``categories``."""
    return merge_ranges([(code, code) for code in ASCII if unicodedata.category(chr(code)).startswith(categories)])


_LOWER: CodePointRanges = ((0x61, 0x7A),)
_UPPER: CodePointRanges = ((0x41, 0x5A),)
_ALPHA = merge_ranges([*_LOWER, *_UPPER])
_ALNUM = merge_ranges([*_ALPHA, *_DIGIT])

_POSIX: dict[str, CodePointRanges] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ((0x00, 0x7F),),
    "Alpha": _ALPHA,
    "Digit": _DIGIT,
    "Alnum": _ALNUM,
    "Punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Blank": _characters_of("\t "),
    "Cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "XDigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
    "Space": _SPACE,
}

_CATEGORIES: dict[str, CodePointRanges] = {
    name: _of_categories(name)
    for name in (
        "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Po", "S", "Sm",
        "Sc", "Sk", "So", "Z", "Zs", "C", "Cc",
    )
}  # fmt: skip

_PROPERTIES: dict[str, CodePointRanges] = {
    "IsAlphabetic": _ALPHA,
    "IsLetter": _ALPHA,
    "IsDigit": _DIGIT,
    "IsLowercase": _LOWER,
    "IsUppercase": _UPPER,
    "IsPunctuation": _CATEGORIES["P"],
    "IsLatin": _ALPHA,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaLetter": _ALPHA,
    "javaDigit": _DIGIT,
    "javaLetterOrDigit": _ALNUM,
}

NAMED_CLASSES: dict[str, CodePointRanges] = (
    _POSIX | _CATEGORIES | {f"Is{name}": ranges for name, ranges in _CATEGORIES.items()} | _PROPERTIES
)
"""The name in ``\\p{...}`` -> the ASCII characters of this class."""

SINGLE_CASE_CLASSES = frozenset(
    name for name, ranges in NAMED_CLASSES.items() if ranges in (_LOWER, _UPPER) or "Lt" in name
)
"""Classes that contain letters of one case only.  With the flag ``i``, releases of Java differ in their meaning."""

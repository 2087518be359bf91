"""Patterns and names of topics, for holding our reading of Java's regular expressions against Java itself.

    python -m tests.java_regex_cases      writes ``tests/data/java-regex.jsonl`` anew (needs Java)

``generated`` makes as many patterns as are asked for, out of everything that a pattern can hold, valid or not.
``answers`` asks Java.  The file holds what Java 17 said about every example of the reference page and some hundred
patterns more, so that a test without Java can tell when our reading changes.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from zkconsumer.member.topic_filter import normalise
from zkconsumer.testing.sandbox.java import compiled, find_jdk

RECORDED = Path(__file__).parent / "data" / "java-regex.jsonl"
PAGE = Path(__file__).parent.parent / "migration_docs" / "reference" / "topic-filters.md"
RECORDED_PATTERNS = 400
RECORDED_NAMES = 12
COMMON_NAMES = (
    "test-good", "test-bad", "clicks", "views", "a.c-1_x", "abc-x", "aab", "my-end.x", "abbe", "bcf", "A1-x", "Ab1",
    "abcd", "a.bb", "AbC", "xY", "aBCd", "a.b-c", "x_y", "a", "ab",
)  # fmt: skip
TIMEOUT_S = 300
INVALID = "invalid"

PROGRAM = "JavaRegex"

LETTERS = "abAkK19_-."
ATOMS = (
    *LETTERS, "test", "bad", "x", ".", ".", "\\.", "\\-", "\\w", "\\d", "\\W", "\\D", "\\s", "\\S", "\\h", "\\H", "\\v",
    "\\V", "[ab]", "[^a]", "[a-k]", "[A-K1-9]", "[\\w.]", "[\\w-]", "[^\\d_]", "[a-z&&[^k]]", "[a-k&&b-x]",
    "[a[bk]]", "[^-.]", "[.-]", "[\\p{Alnum}_]", "[^\\p{Punct}]", "\\p{Alpha}", "\\p{Lower}", "\\P{Upper}", "\\p{L}",
    "\\pL", "\\PN", "\\p{IsAlphabetic}", "\\p{javaLowerCase}", "\\Qa.b\\E", "\\Q-\\E", "\\Q1", "\\x61", "\\x{6b}",
    "\\u0041", "\\0141", "\\cA", "\\c!", "\\t",
    "^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\G", "(?i)", "(?-i)", "(?s)", "(?im)", "(?u)", "(?iU)",
)  # fmt: skip
PLACES = ("^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\G", "(?i)", "(?-i)", "(?s)", "(?im)", "(?u)", "(?iU)")
LOOKS = ("(?=", "(?!", "(?<=", "(?<!")
SUFFIXES = ("", "", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{2}?", "*+", "++", "?+", "{2}+")
OPENINGS = (
    "(", "(", "(?:", "(?:", "(?=", "(?!", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?i:", "(?-i:", "(?<m>",
)  # fmt: skip
ODD = (
    "[", "]", "(", ")", "{", "}", "{1}", "\\", "*", "+", "?", "|", "||", "&&", "[]", "[^]", "\\E", "\\Q", "\\q", "\\1",
    "\\k<n>", "(?x)", "\\p{Foo}", "\\xZ", "\\u12", "\\08", "[z-a]", "[a-\\d]", "\\R", "\\X", "a{1001}",
)  # fmt: skip


def generated(count: int, seed: int) -> Iterator[str]:
    """So many patterns, normalised as every filter is."""
    rng = Random(seed)
    for _ in range(count):
        pattern = _alternatives(rng, 3)
        if rng.random() < 0.15:
            at = rng.randint(0, len(pattern))
            pattern = pattern[:at] + rng.choice(ODD) + pattern[at:]
        yield normalise(pattern)


def names(pattern: str, count: int, seed: int) -> list[str]:
    """Names that topics can have, some of them near the pattern."""
    rng = Random(f"{seed} {pattern}")
    letters = [c for c in pattern if c.isascii() and (c.isalnum() or c in "._-")] + list(LETTERS)
    return ["".join(rng.choices(letters, k=rng.choice((1, 1, 2, 2, 3, 4, 6, 9)))) for _ in range(count)]


def answers(table: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """For each pattern and its names what ``JavaRegex.java`` says."""
    classes = compiled((PROGRAM,), None)
    lines = "".join(" ".join(map(_encoded, (pattern, *of))) + "\n" for pattern, of in table)
    command = [find_jdk().java, "-cp", str(classes), "-Xss2m", PROGRAM]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout.splitlines()


def examples() -> list[tuple[str, str]]:
    """The examples of the reference page, and what it says of each."""
    row = r"(?m)^\|[^`\n]*(?:`[^`\n]*`[^`\n]*)?\| `([^`\n]+)` \| ((?:exact|refused|invalid)[^|]*) \|"
    rows = re.findall(row, PAGE.read_text())
    return [(example.replace("\\|", "|"), said.strip()) for example, said in rows]


def record() -> None:
    """Ask Java, and write the file."""
    patterns = dict.fromkeys([normalise(example) for example, _ in examples()] + list(generated(RECORDED_PATTERNS, 0)))
    table = [(p, [*dict.fromkeys([*COMMON_NAMES, *names(p, RECORDED_NAMES, 0)])]) for p in patterns]
    said = answers(table)
    lines = [json.dumps([p, a, of if a[0] in "01" else []]) for (p, of), a in zip(table, said, strict=True)]
    RECORDED.write_text("\n".join(lines) + "\n")


def recorded() -> Iterator[tuple[str, str, list[str]]]:
    """Pattern, what Java said, and of which names."""
    for line in RECORDED.read_text().splitlines():
        pattern, said, of = json.loads(line)
        yield pattern, said, of


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _alternatives(rng: Random, depth: int) -> str:
    return "|".join(_sequence(rng, depth) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def _sequence(rng: Random, depth: int) -> str:
    items = ""
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        atom = _atom(rng, depth)
        # What takes no character is hardly ever repeated, and not evaluated when it is.
        is_place = atom in PLACES or atom.startswith(LOOKS)
        items += atom if is_place and rng.random() < 0.98 else atom + rng.choice(SUFFIXES)
    return items


def _atom(rng: Random, depth: int) -> str:
    if depth and rng.random() < 0.3:
        return f"{rng.choice(OPENINGS)}{_alternatives(rng, depth - 1)})"
    return rng.choice(ATOMS)


if __name__ == "__main__":
    record()

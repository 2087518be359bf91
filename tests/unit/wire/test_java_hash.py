"""``java_hash`` against what OpenJDK 17 printed for ``String.hashCode``."""

from __future__ import annotations

import pytest

from zkconsumer.wire.java_hash import java_hash


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("clicks", -1357714453),
        ("topic-2147483647-with-a-long-name", 343836204),
        ("t\u00f6pic", 114568008),
        ("\u4e2d\u6587", 646394),
    ],
)
def test_the_hash_is_that_of_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_smallest_integer_is_reached_as_in_java() -> None:
    assert java_hash("polygenelubricants") == -(2**31)


def test_a_character_beyond_the_basic_plane_counts_as_two_units() -> None:
    assert java_hash("\U0001f600") == 1772899


def test_a_lone_surrogate_counts_as_itself() -> None:
    assert java_hash("x\ud83d") == 59077

"""Malformed znodes (fault rows 28 and 29): any bytes give a value or ``MalformedZnode``, soon, and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.zk.znode_formats import (
    Registration,
    parse_broker,
    parse_control,
    parse_offset,
    parse_owner,
    parse_partition_state,
    parse_registration,
    parse_topic,
)

MIB = 1024 * 1024

READERS: list[Callable[[bytes], object]] = [
    parse_registration,
    parse_offset,
    parse_owner,
    parse_topic,
    parse_partition_state,
    parse_control,
    lambda data: parse_broker(0, data),
]


def registration(subscription: str, rest: str = "") -> bytes:
    return f'{{"version":1,"subscription":{subscription},"pattern":"static"{rest}}}'.encode()


def reason_of(read: Callable[[bytes], object], data: bytes) -> str:
    try:
        read(data)
    except MalformedZnode as exc:
        return str(exc)
    return ""


def refuses(data: bytes) -> str:
    with pytest.raises(MalformedZnode) as caught:
        parse_registration(data)
    assert len(str(caught.value)) < 1_000, "a log line carries this"
    return str(caught.value)


# --- row 28 -----------------------------------------------------------------------------------------------------


def test_not_json_is_malformed() -> None:
    refuses(b"clicks")


def test_not_utf_8_where_it_matters_is_malformed() -> None:
    refuses(registration("{}").replace(b'"pattern"', b'"p\xfftern"'))


def test_utf_16_is_malformed() -> None:
    refuses(registration('{"t":1}').decode().encode("utf-16"))


def test_a_byte_order_mark_is_malformed() -> None:
    refuses(b"\xef\xbb\xbf" + registration('{"t":1}'))


def test_an_array_is_malformed() -> None:
    refuses(b"[]")


def test_null_is_malformed() -> None:
    refuses(b"null")


@pytest.mark.parametrize("wrong", ["1", '"t"', "true", "null", '["t"]', "[]"])
def test_a_subscription_of_another_type_is_malformed(wrong: str) -> None:
    assert "subscription" in refuses(registration(wrong))


@pytest.mark.parametrize("wrong", ["1", "true", '["static"]', "{}"])
def test_a_pattern_of_another_type_is_malformed(wrong: str) -> None:
    assert "pattern" in refuses(registration("{}").replace(b'"static"', wrong.encode()))


@pytest.mark.parametrize("wrong", ["[1]", "{}", '"1"', "1.5", "1e0"])
def test_a_count_of_another_type_is_malformed(wrong: str) -> None:
    refuses(registration(f'{{"t":{wrong}}}'))


@pytest.mark.parametrize("wrong", ["true", "false"])
def test_a_bool_as_count_is_malformed(wrong: str) -> None:
    refuses(registration(f'{{"t":{wrong}}}'))


def test_a_count_of_two_to_the_31_is_malformed() -> None:
    refuses(registration('{"t":2147483648}'))


def test_a_count_of_minus_one_is_malformed() -> None:
    refuses(registration('{"t":-1}'))


def test_a_count_that_would_fill_the_memory_is_malformed() -> None:
    assert "at most 100000" in refuses(registration('{"t":2147483647}'))
    assert "at most 100000" in refuses(registration('{"t":60000,"u":60000}'))


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_malformed_as_count_and_anywhere(wrong: str) -> None:
    refuses(registration(f'{{"t":{wrong}}}'))
    refuses(registration('{"t":1}', f',"x":{wrong}'))


def test_an_infinite_number_is_malformed_as_count_and_let_pass_where_1_0_lets_it_pass() -> None:
    refuses(registration('{"t":1e999}'))
    assert parse_registration(registration('{"t":1}', ',"x":1e999')).subscription == {"t": 1}


def test_of_duplicate_keys_the_last_counts() -> None:
    assert parse_registration(registration('{"t":0,"t":1}')).subscription == {"t": 1}
    refuses(registration('{"t":1,"t":0}'))


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_a_hundred_thousand_nested_brackets_are_malformed(opening: str) -> None:
    refuses(opening.encode() * 100_000)
    refuses(registration('{"t":1}', ',"x":' + opening * 100_000))
    refuses(registration('{"t":1}', ',"x":' + "[" * 100_000 + "]" * 100_000))


def test_many_brackets_beside_each_other_or_in_strings_are_not_nested() -> None:
    assert parse_registration(registration('{"t":1}', ',"x":[' + "[]," * 50_000 + "[]]"))
    assert parse_registration(registration('{"t":1}', ',"x":"' + '[{\\"' * 50_000 + '"'))


def test_brackets_that_are_allowed_do_not_overflow_a_stack_that_is_nearly_used_up() -> None:
    data = registration('{"t":1}', ',"x":' + "[" * 90 + "]" * 90)

    def dive(depth: int) -> Registration | str:
        if depth:
            return dive(depth - 1)
        try:
            return parse_registration(data)
        except MalformedZnode as exc:
            return str(exc)

    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.extend(dive(depth) for depth in range(0, 900, 10)))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    try:
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    assert outcomes
    assert isinstance(outcomes[0], Registration)


def test_one_mebibyte_is_read_and_one_byte_more_is_not() -> None:
    frame = len(registration('{"t":1}', ',"x":""'))
    assert parse_registration(registration('{"t":1}', f',"x":"{"a" * (MIB - frame)}"')).subscription == {"t": 1}
    assert "1048577 bytes" in refuses(registration('{"t":1}', f',"x":"{"a" * (MIB - frame + 1)}"'))


@pytest.mark.parametrize(
    "bomb",
    [
        b'"' + b"\\" * (MIB - 2),
        b'{"a":"' + b"\\u00" * 250_000,
        b'{"a":' + b"1" * 1_000_000,
        b'{"a":-' + b" " * 1_000_000,
        b'{"a":' + b"t" * 1_000_000,
        b" " * MIB,
        b'{"a":1' + b",\"a\":1" * 150_000,
        b'{"\xff' + b"\xff" * 1_000_000,
        b'{"a":1.' + b"0" * 1_000_000 + b"}",
        b'{"a":1e' + b"9" * 1_000_000 + b"}",
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_mebibyte_of_anything_is_answered_soon(bomb: bytes) -> None:
    for read in READERS:
        assert len(reason_of(read, bomb)) < 1_000


def test_two_hundred_thousand_digits_are_let_pass_where_1_0_lets_them_pass() -> None:
    assert parse_registration(registration('{"t":1}', ',"x":' + "9" * 200_000)).subscription == {"t": 1}
    assert len(refuses(registration('{"t":' + "9" * 200_000 + "}"))) < 1_000


# --- row 29 -----------------------------------------------------------------------------------------------------


def offset_refused(data: bytes) -> None:
    with pytest.raises(MalformedZnode) as caught:
        parse_offset(data)
    assert len(str(caught.value)) < 200


def test_an_empty_offset_is_malformed() -> None:
    offset_refused(b"")


def test_letters_are_no_offset() -> None:
    offset_refused(b"abc")


def test_minus_five_is_an_offset_and_means_none() -> None:
    assert parse_offset(b"-5") == -5


def test_an_exponent_is_no_offset() -> None:
    offset_refused(b"1e3")


def test_an_arabic_digit_is_no_offset() -> None:
    offset_refused("٣".encode())


def test_a_million_digits_are_no_offset() -> None:
    offset_refused(b"1" * 1_000_000)


@pytest.mark.parametrize(
    "data",
    [b" 1", b"1 ", b"1\n", b"\x00", b"1_0", b"0x1", b"--1", b"+-1", b"-", b"+", b"1.0", b"9223372036854775808",
     b"-9223372036854775809", b"\xff", b"\xef\xbb\xbf1", "１".encode(), b"0" * (MIB + 1), b"null", b"NaN"],
)  # fmt: skip
def test_what_java_cannot_read_as_a_long_is_no_offset(data: bytes) -> None:
    offset_refused(data)

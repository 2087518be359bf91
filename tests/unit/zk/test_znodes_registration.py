"""Registrations: written byte for byte, and read as whichever release reads them.

What the releases do was compared with the released classes (``TopicCount`` of 0.10.2.2 and 1.1.1) over some hundred
thousand random texts; these are the cases with a name, those of JsonTest among them.
"""

from __future__ import annotations

import json

import pytest

from zkconsumer.errors import InternalError, InvalidNameError, MalformedZnode
from zkconsumer.zk.znode_formats import Registration, format_registration, parse_registration


def static(subscription: str, rest: str = ',"pattern":"static","timestamp":"1"') -> Registration:
    return parse_registration(f'{{"version":1,"subscription":{subscription}{rest}}}'.encode())


def listed(subscription: str, pattern: str = "white_list") -> Registration:
    return static(subscription, f',"pattern":"{pattern}","timestamp":"1"')


def refusal(text: str | bytes) -> str:
    with pytest.raises(MalformedZnode) as caught:
        parse_registration(text if isinstance(text, bytes) else text.encode())
    return str(caught.value)


# --- writing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registration", "data"),
    [
        (
            Registration("static", {"topic1": 2, "topic2": 1}, "1416246370000"),
            b'{"version":1,"subscription":{"topic1":2,"topic2":1},"pattern":"static","timestamp":"1416246370000"}',
        ),
        (
            Registration("white_list", {"t1|t2": 2}, "1416246370000"),
            b'{"version":1,"subscription":{"t1|t2":2},"pattern":"white_list","timestamp":"1416246370000"}',
        ),
        (
            Registration("black_list", {"__.*": 1}, "1416246370000"),
            b'{"version":1,"subscription":{"__.*":1},"pattern":"black_list","timestamp":"1416246370000"}',
        ),
        (
            Registration("static", {}, "1416246370000"),
            b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1416246370000"}',
        ),
    ],
)
def test_the_written_form_is_the_originals_byte_for_byte_and_reads_back(
    registration: Registration, data: bytes
) -> None:
    assert format_registration(registration) == data
    assert parse_registration(data) == registration


def test_the_topics_keep_the_order_in_which_they_were_given() -> None:
    written = format_registration(Registration("static", {"z": 1, "a": 2, "m": 3}, "1"))
    assert written.startswith(b'{"version":1,"subscription":{"z":1,"a":2,"m":3},')


def test_each_character_is_escaped_once_and_a_slash_too() -> None:
    written = format_registration(Registration("white_list", {'a"b\\.c/d\n\x01\x7f\x9f': 1}, "1"))
    assert b'{"a\\"b\\\\.c\\/d\\n\\u0001\\u007f\\u009f":1}' in written
    assert json.loads(written)["subscription"] == {'a"b\\.c/d\n\x01\x7f\x9f': 1}


def test_letters_beyond_ascii_are_written_as_utf_8() -> None:
    assert '"é😀"'.encode() in format_registration(Registration("white_list", {"é😀": 1}, "1"))


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_a_count_that_would_stop_the_group_is_never_written(count: int) -> None:
    with pytest.raises(InternalError):
        format_registration(Registration("static", {"t": count}, "1"))


def test_half_a_surrogate_pair_is_never_written() -> None:
    with pytest.raises(InvalidNameError):
        format_registration(Registration("white_list", {"\ud800": 1}, "1"))


# --- reading: the table of the two columns ----------------------------------------------------------------------


def test_a_numeric_timestamp_beyond_int32_counts_because_1_0_accepts_it() -> None:
    read = static('{"t":2}', ',"pattern":"static","timestamp":1416246370000')
    assert (read.subscription, read.timestamp) == ({"t": 2}, "1416246370000")


def test_a_small_numeric_timestamp_is_accepted_by_all() -> None:
    assert static('{"t":1}', ',"pattern":"static","timestamp":5').timestamp == "5"


def test_a_missing_timestamp_and_unknown_keys_are_accepted_by_all() -> None:
    read = static('{"t":1}', ',"pattern":"static","more":[1,{"x":null}]')
    assert (read.subscription, read.timestamp) == ({"t": 1}, None)


def test_a_count_with_a_fraction_is_accepted_by_none() -> None:
    assert "not an int32" in refusal('{"version":1,"subscription":{"t":1.0},"pattern":"static","timestamp":"1"}')


def test_a_count_in_quotes_is_accepted_by_none() -> None:
    assert "not an int32" in refusal('{"version":1,"subscription":{"t":"1"},"pattern":"static","timestamp":"1"}')


@pytest.mark.parametrize("count", ["0", "-1", "-0", "null"])
@pytest.mark.parametrize("pattern", ["static", "white_list"])
def test_a_count_below_one_is_accepted_by_none(count: str, pattern: str) -> None:
    assert refusal(f'{{"version":1,"subscription":{{"t":{count}}},"pattern":"{pattern}","timestamp":"1"}}')


def test_a_missing_pattern_is_accepted_by_none() -> None:
    assert "pattern" in refusal('{"version":1,"subscription":{"t":1},"timestamp":"1"}')


def test_a_missing_subscription_is_accepted_by_none() -> None:
    assert "subscription" in refusal('{"version":1,"pattern":"static","timestamp":"1"}')


@pytest.mark.parametrize("pattern", ["other", "", "STATIC", "whitelist"])
def test_any_other_pattern_is_static(pattern: str) -> None:
    read = listed('{"t":1,"u":2}', pattern)
    assert (read.pattern, read.subscription) == ("static", {"t": 1, "u": 2})


def test_a_null_pattern_is_static_because_releases_up_to_0_11_cast_it() -> None:
    assert static('{"t":1}', ',"pattern":null').pattern == "static"


def test_a_null_pattern_with_a_number_that_only_1_0_reads_is_accepted_by_none() -> None:
    assert refusal('{"subscription":{"t":1},"pattern":null,"timestamp":1416246370000}')


@pytest.mark.parametrize("pattern", ["white_list", "black_list"])
def test_a_list_without_a_subscription_is_static_without_topics(pattern: str) -> None:
    assert listed("{}", pattern) == Registration("static", {}, "1")


@pytest.mark.parametrize("text", ["", " ", "topic", "{", "[]", "null", '"static"', "1", "true"])
def test_what_is_no_json_object_is_accepted_by_none(text: str) -> None:
    assert refusal(text)


def test_any_number_beyond_int32_counts_because_1_0_accepts_it() -> None:
    read = parse_registration(b'{"version":2147483648,"x":9999999999999999999999999,"pattern":"","subscription":{}}')
    assert read.version == 2147483648


def test_another_version_or_none_is_accepted_by_all() -> None:
    assert parse_registration(b'{"version":2,"subscription":{},"pattern":"static"}').version == 2
    assert parse_registration(b'{"subscription":{},"pattern":"static"}').version is None
    assert parse_registration(b'{"version":"1","subscription":{},"pattern":"static"}').version is None


def test_a_filter_that_java_cannot_compile_is_for_the_filter_to_refuse() -> None:
    assert listed('{"(":1}').subscription == {"(": 1}


def test_a_backslash_that_escapes_nothing_stays_as_releases_up_to_0_11_keep_it() -> None:
    assert listed(r'{"foo\.bar":1}').subscription == {r"foo\.bar": 1}


def test_up_to_0_11_a_backslash_stays_and_the_known_escapes_count() -> None:
    assert listed(r'{"\d\n\u0041\"\\\/\b\f\r\t":1}').subscription == {'\\d\nA"\\/\b\f\r\t': 1}


def test_a_lone_backslash_beside_a_number_that_only_1_0_reads_is_read_as_1_0_1_reads_it() -> None:
    read = static(r'{"foo\.bar":1}', ',"pattern":"white_list","timestamp":1416246370000')
    assert read.subscription == {r"foo\.bar": 1}


def test_a_doubly_escaped_filter_of_1_0_1_is_read_back_with_two_backslashes_as_all_read_it() -> None:
    assert listed(r'{"foo\\\\.bar":1}').subscription == {r"foo\\.bar": 1}


def test_of_several_filters_the_first_counts() -> None:
    assert listed('{"b":2,"a":3,"c":1}').subscription == {"b": 2}


def test_of_more_than_four_filters_the_first_of_scalas_hash_trie_counts() -> None:
    assert listed('{"a":1,"b":2,"c":3,"d":4,"e":5}').subscription == {"e": 5}


def test_beside_the_first_filter_up_to_0_11_no_value_counts() -> None:
    assert listed('{"b":2,"a":"x"}').subscription == {"b": 2}
    assert refusal('{"subscription":{"b":2,"a":"x"},"pattern":"white_list","timestamp":1416246370000}')


# --- reading: what the table does not say, seen in the code and in runs of it ---------------------------------------


def test_the_blanks_and_the_order_of_0_8_0_are_accepted() -> None:
    text = (
        b'{ "pattern":"static", "subscription":{ "topic1": 2,"topic2": 1 }, "timestamp":"1416246370000", "version":1 }'
    )
    assert parse_registration(text) == Registration("static", {"topic1": 2, "topic2": 1}, "1416246370000")


def test_of_a_key_that_comes_twice_the_last_value_and_the_first_place_count() -> None:
    assert list(static('{"t":1,"u":2,"t":3}').subscription.items()) == [("t", 3), ("u", 2)]


def test_what_follows_the_object_does_not_matter_to_1_0() -> None:
    assert static('{"t":1}', ',"pattern":"static"}}, and so on').subscription == {"t": 1}


def test_control_characters_in_strings_and_between_tokens_are_accepted_up_to_0_11() -> None:
    assert static('{\x0b"a\tb"\x00:\x1f1}').subscription == {"a\tb": 1}


def test_digits_of_another_script_are_digits_up_to_0_11() -> None:
    assert static('{"t":٣}').subscription == {"t": 3}


def test_a_blank_after_a_minus_is_accepted_up_to_0_11_and_the_number_is_refused_as_a_count() -> None:
    assert static('{"t":1}', ',"pattern":"static","x":- 5').subscription == {"t": 1}


def test_bytes_that_are_not_utf_8_are_replaced_as_java_does() -> None:
    assert parse_registration(b'{"subscription":{"a\xff":1},"pattern":"static"}').subscription == {"a\ufffd": 1}


def test_two_escaped_halves_of_a_surrogate_pair_are_one_character_for_every_reader() -> None:
    for tail in ("", r'"\d":1,'):
        read = static('{%s"\\ud83d\\ude00":1}' % tail)  # noqa: UP031
        assert "😀" in read.subscription


def test_a_topic_that_is_no_name_is_kept_because_the_original_only_looks_it_up() -> None:
    assert static('{"..":1,"a/b":1,"":1}').subscription == {"..": 1, "a/b": 1, "": 1}


def test_a_refusal_says_which_releases_refused_for_what() -> None:
    text = '{"version":1,"subscription":{"t":0},"pattern":"static","timestamp":1416246370000}'
    assert refusal(text) == (
        "0 streams for 't': must be at least 1 (from 1.0 on); the number 1416246370000 is not an int32 (up to 0.11)"
    )

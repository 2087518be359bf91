"""Deserializers: Kafka's own by their names in Java, and classes of the user."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from bridge import Deserializer, SerializationException
from bridge.client.deserializers import JAVA_PACKAGE, load_deserializer
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.fetch.fetched_records import RecordHeaders

HERE = "tests.unit.kafka.test_deserializers"
UUID_TEXT = "123e4567-e89b-12d3-a456-426614174000"


class Upper:
    """A deserializer of the user."""

    def __init__(self) -> None:
        self.configured: tuple[Mapping[str, Any], bool] | None = None

    def configure(self, values: Mapping[str, Any], is_key: bool) -> None:
        self.configured = values, is_key

    def deserialize(self, topic: str, headers: RecordHeaders, data: bytes) -> str:
        return f"{topic} {data.decode().upper()}"


class NoDeserializer:
    """Lacks the method."""


def read(name: str, data: bytes, **values: str) -> Any:
    settings = {key.replace("_", "."): value for key, value in values.items()}
    return load_deserializer(name, settings, is_key=False).deserialize("t", (), data)


@pytest.mark.parametrize("package", ["", JAVA_PACKAGE])
@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("ByteArrayDeserializer", b"\0x", b"\0x"),
        ("ByteBufferDeserializer", b"\0x", memoryview(b"\0x")),
        ("BytesDeserializer", b"", b""),
        ("ShortDeserializer", b"\xff\xfe", -2),
        ("IntegerDeserializer", b"\x80\0\0\0", -(2**31)),
        ("LongDeserializer", b"\0\0\0\x01\0\0\0\0", 2**32),
        ("FloatDeserializer", struct.pack(">f", 1.5), 1.5),
        ("DoubleDeserializer", struct.pack(">d", -0.1), -0.1),
        ("StringDeserializer", "é".encode(), "é"),
        ("UUIDDeserializer", UUID_TEXT.encode(), UUID(UUID_TEXT)),
        ("UUIDDeserializer", b"1-2-3-4-5", UUID("00000001-0002-0003-0004-000000000005")),
    ],
)
def test_a_deserializer_of_kafka_has_its_name_in_java(package: str, name: str, data: bytes, value: object) -> None:
    assert read(f"{package}{name}", data) == value


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("ShortDeserializer", b"x", "Size of data received by ShortDeserializer is not 2: it is 1"),
        ("IntegerDeserializer", b"", "Size of data received by IntegerDeserializer is not 4: it is 0"),
        ("LongDeserializer", b"1234", "Size of data received by LongDeserializer is not 8: it is 4"),
        ("FloatDeserializer", b"12345", "Size of data received by Deserializer is not 4: it is 5"),
        ("DoubleDeserializer", b"123456789", "Size of data received by Deserializer is not 8: it is 9"),
        ("UUIDDeserializer", b"123e4567", "Error parsing data into UUID: '123e4567' is not one"),
        ("UUIDDeserializer", UUID_TEXT.encode() + b"0", "Error parsing data into UUID"),
        ("UUIDDeserializer", b"{1-2-3-4-5}", "Error parsing data into UUID"),
        ("UUIDDeserializer", b"1-2-3--5", "Error parsing data into UUID"),
        ("VoidDeserializer", b"x", "Data should be null for a VoidDeserializer, and has 1 bytes"),
    ],
)
def test_bytes_of_another_type_are_an_error(name: str, data: bytes, text: str) -> None:
    with pytest.raises(SerializationException, match=text):
        read(name, data)


def test_malformed_text_is_replaced_as_in_java() -> None:
    assert read("StringDeserializer", b"a\xffb") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("data", "settings", "text"),
    [
        (b"\xe9", {"deserializer_encoding": "ISO-8859-1"}, "é"),
        (b"\xe9", {"value_deserializer_encoding": "ISO-8859-1", "deserializer_encoding": "UTF-8"}, "é"),
        (b"\xc3\xa9", {"key_deserializer_encoding": "ISO-8859-1"}, "é"),
        (b"\0a", {"deserializer_encoding": "UTF-16"}, "a"),
        (b"\xff\xfea\0", {"deserializer_encoding": "UTF-16"}, "a"),
        (b"\xfe\xff\0a", {"deserializer_encoding": "UTF-16"}, "a"),
        (b"\0\0\0a", {"deserializer_encoding": "UTF-32"}, "a"),
    ],
)
def test_the_encoding_is_that_of_the_value_or_of_both(data: bytes, settings: dict[str, str], text: str) -> None:
    assert read("StringDeserializer", data, **settings) == text


def test_the_encoding_of_a_key_has_its_own_setting() -> None:
    values = {"key.deserializer.encoding": "ISO-8859-1", "value.deserializer.encoding": "UTF-8"}
    assert load_deserializer("StringDeserializer", values, is_key=True).deserialize("t", (), b"\xe9") == "é"


def test_an_encoding_that_is_no_text_counts_as_not_set() -> None:
    values = {"deserializer.encoding": 8}
    assert load_deserializer("StringDeserializer", values, is_key=False).deserialize("t", (), b"\xc3\xa9") == "é"


def test_a_class_of_the_user_is_created_and_configured() -> None:
    values = {"upper": "yes"}
    deserializer: Deserializer[str] = load_deserializer(f"{HERE}:Upper", values, is_key=True)
    assert isinstance(deserializer, Upper)
    assert deserializer.configured == (values, True)
    assert deserializer.deserialize("t", (), b"a") == "t A"


def test_an_object_of_the_program_is_used_as_it_is() -> None:
    mine = Upper()
    assert load_deserializer(mine, {}, is_key=False) is mine
    assert mine.configured is None


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (
            "org.example.AvroDeserializer",
            r"is not known; name one of Kafka's \(ByteArray.*, UUIDDeserializer.*\), or",
        ),
        ("ListDeserializer", "value.deserializer: ListDeserializer is not known"),
        (f"{HERE}:Missing", "value.deserializer: .* cannot be created: AttributeError"),
        (f"{HERE}:NoDeserializer", r"is not a bridge.Deserializer; it lacks deserialize\(topic, headers, data\)"),
        (7, "value.deserializer: int is not a bridge.Deserializer"),
    ],
)
def test_a_setting_that_names_no_deserializer_is_an_error(setting: object, text: str) -> None:
    with pytest.raises(InvalidConfigException, match=text):
        load_deserializer(setting, {}, is_key=False)


@pytest.mark.parametrize("encoding", ["no-such-encoding", "hex"])
@pytest.mark.parametrize("name", ["StringDeserializer", "UUIDDeserializer"])
def test_an_unknown_encoding_is_an_error_of_the_configuration(name: str, encoding: str) -> None:
    with pytest.raises(InvalidConfigException, match=f"deserializer.encoding is '{encoding}', which Python does not"):
        read(name, b"", deserializer_encoding=encoding)

"""Deserializers of keys and values, as ``org.apache.kafka.common.serialization`` has them (Kafka 3.0).

A setting ``key.deserializer`` or ``value.deserializer`` is one of

    an object with ``deserialize(topic, headers, data)``       used as it is, as Java uses an object of its constructor
    package.module:ClassName                          created and configured
    org.apache.kafka.common.serialization.LongDeserializer, or LongDeserializer      one of ``STANDARD_DESERIALIZERS``

Differences from Java: an unknown encoding is an error when the consumer is created, and not at the first record;
``ListDeserializer`` does not exist, because it needs classes of Java's lists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from uuid import UUID

from bridge.client.class_loader import create_from_path, missing_methods
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.fetch.fetched_records import Deserializer, RecordHeaders
from zkconsumer.kafka.group.errors import SerializationException
from zkconsumer.utf8 import string_function

JAVA_PACKAGE = "org.apache.kafka.common.serialization."
ENCODING_KEY = "deserializer.encoding"
ENCODING_DEFAULT = "UTF-8"
UUID_CHARS_MAX = 36

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StandardDeserializer(Generic[T]):
    """One of Kafka's own deserializers; ``name`` is its class in Java."""

    name: str
    function: Callable[[bytes], T]

    def deserialize(self, topic: str, headers: RecordHeaders, data: bytes) -> T:
        """The object of ``data``; ``SerializationException``: it is not of this type."""
        return self.function(data)


# --- the functions ----------------------------------------------------------------------------------------------


def deserialize_byte_array(data: bytes) -> bytes:
    """The bytes themselves."""
    return data


def deserialize_byte_buffer(data: bytes) -> memoryview:
    """A view of the bytes."""
    return memoryview(data)


def number_function(form: str, name: str) -> Callable[[bytes], int | float]:
    """Reads a big-endian number of this form of ``struct``; ``name``: of the deserializer, for the error."""
    number = struct.Struct(form)

    def deserialize_number(data: bytes) -> int | float:
        if len(data) != number.size:
            raise SerializationException(f"Size of data received by {name} is not {number.size}: it is {len(data)}")
        found: int | float = number.unpack(data)[0]
        return found

    return deserialize_number


def deserialize_void(data: bytes) -> None:
    """Raise: a record that is read with this deserializer has no bytes."""
    raise SerializationException(f"Data should be null for a VoidDeserializer, and has {len(data)} bytes")


def uuid_function(encoding: str) -> Callable[[bytes], UUID]:
    """Reads the text of a UUID as ``UUID.fromString``: five hexadecimal numbers, of which the lowest bits count."""
    decode = string_function(encoding)

    def deserialize_uuid(data: bytes) -> UUID:
        text = decode(data)
        parts = text.split("-")
        if len(text) > UUID_CHARS_MAX or len(parts) != 5 or not all(map(_is_hexadecimal, parts)):
            raise SerializationException(f"Error parsing data into UUID: {text[:UUID_CHARS_MAX]!r} is not one")
        bits = (32, 16, 16, 16, 48)
        number = 0
        for part, width in zip(parts, bits, strict=True):
            number = (number << width) | (int(part, 16) & ((1 << width) - 1))
        return UUID(int=number)

    return deserialize_uuid


def _is_hexadecimal(text: str) -> bool:
    return 0 < len(text) <= 16 and all(char in "0123456789abcdefABCDEF" for char in text)


STANDARD_DESERIALIZERS: Mapping[str, Callable[[bytes], Any]] = MappingProxyType(
    {
        "ByteArrayDeserializer": deserialize_byte_array,
        "ByteBufferDeserializer": deserialize_byte_buffer,
        "BytesDeserializer": deserialize_byte_array,
        "DoubleDeserializer": number_function(">d", "Deserializer"),
        "FloatDeserializer": number_function(">f", "Deserializer"),
        "IntegerDeserializer": number_function(">i", "IntegerDeserializer"),
        "LongDeserializer": number_function(">q", "LongDeserializer"),
        "ShortDeserializer": number_function(">h", "ShortDeserializer"),
        "VoidDeserializer": deserialize_void,
    }
)
"""Java's class → our function, for the deserializers without settings."""

ENCODED_DESERIALIZERS: Mapping[str, Callable[[str], Callable[[bytes], Any]]] = MappingProxyType(
    {"StringDeserializer": string_function, "UUIDDeserializer": uuid_function}
)
"""Java's class → our function of the encoding."""


# --- the settings -----------------------------------------------------------------------------------------------


def load_deserializer(setting: object, values: Mapping[str, Any], *, is_key: bool) -> Deserializer[Any]:
    """The deserializer of ``key.deserializer`` (``is_key``) or ``value.deserializer``: an object, or a name.

    ``values``: the settings of the consumer, for the encoding (``key.deserializer.encoding``, else
    ``deserializer.encoding``, else UTF-8) and for ``configure`` of a class of the user.  Raises
    ``InvalidConfigException`` for a class or an encoding that does not exist or cannot be used.
    """
    key = "key.deserializer" if is_key else "value.deserializer"
    if not isinstance(setting, str):
        return _checked(setting, key, type(setting).__qualname__)
    name = setting.strip().removeprefix(JAVA_PACKAGE)
    if name in STANDARD_DESERIALIZERS:
        return StandardDeserializer(name, STANDARD_DESERIALIZERS[name])
    if name in ENCODED_DESERIALIZERS:
        encoding_key, encoding = _encoding_of(values, key)
        try:
            return StandardDeserializer(name, ENCODED_DESERIALIZERS[name](encoding))
        except LookupError as error:
            raise InvalidConfigException(
                f"{encoding_key} is {encoding!r}, which Python does not have; set it to the name of an encoding"
            ) from error
    if ":" not in name:
        known = ", ".join(sorted({*STANDARD_DESERIALIZERS, *ENCODED_DESERIALIZERS}))
        raise InvalidConfigException(
            f"{key}: {setting} is not known; name one of Kafka's ({known}), or a class of your own as "
            "package.module:ClassName"
        )

    def configure(created: Any) -> None:
        if callable(getattr(created, "configure", None)):
            created.configure(values, is_key)

    return _checked(create_from_path(key, name, configure), key, name)


def _checked(deserializer: Any, key: str, name: str) -> Deserializer[Any]:
    if missing_methods(deserializer, ("deserialize",)):
        raise InvalidConfigException(
            f"{key}: {name} is not a bridge.Deserializer; it lacks deserialize(topic, headers, data)"
        )
    checked: Deserializer[Any] = deserializer
    return checked


def _encoding_of(values: Mapping[str, Any], key: str) -> tuple[str, str]:
    """The key that has the encoding, and the encoding; as in Java, a value that is not a text counts as not set."""
    own = f"{key}.encoding"
    chosen = own if values.get(own) is not None else ENCODING_KEY
    encoding = values.get(chosen)
    return chosen, encoding if isinstance(encoding, str) else ENCODING_DEFAULT

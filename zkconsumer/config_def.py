"""``Setting``: the definition of a setting, with type, allowed values and parser.  Pure.

The tables of settings are in ``zkconsumer.config_tables``; ``zkconsumer.configuration`` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import EllipsisType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast, overload

T = TypeVar("T")

INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
NAME_PATTERN = re.compile(r"[a-zA-Z0-9._-]*")
"""Valid group and client ids, in every release; the empty text, too."""

JAVA_BLANKS = "".join(map(chr, range(0x21)))

HIDDEN = "[hidden]"
"""The replacement of a secret in every text, as in Kafka."""

VALUE_CHARS_MAX = 100


USER_IN_ADDRESS_ERROR = (
    "an address must not contain a user or a password; set a login at ZooKeeper with zookeeper.auth, one at brokers "
    "with sasl.username and sasl.password"
)
"""The error for an address with an ``@``.  It does not repeat the address."""


def unmasked(text: str) -> str:
    """The text itself: nothing is hidden."""
    return text


def mask_user(text: str) -> str:
    """Addresses without the text before their last ``@``, which may contain passwords."""
    _, at, rest = text.rpartition("@")
    return f"{HIDDEN}@{rest}" if at else text


class Origin(Enum):
    """The program that a setting comes from."""

    SCALA_CONSUMER = "the Scala consumer, 0.8 to 1.1"
    NEWER_CLIENTS = "Kafka's newer clients"
    ZKCONSUMER = "this program"


class SettingStatus(Enum):
    """How a key that a user sets is treated."""

    EFFECTIVE = "acts"
    REJECTED = "is refused"
    IGNORED = "has no effect"


class SettingOutcome(NamedTuple):
    """``status`` of a key in one configuration; ``reason``: why, or the other key whose effect it has."""

    status: SettingStatus
    reason: str

    @classmethod
    def effective(cls, words: str = "") -> SettingOutcome:
        """The key has its effect."""
        return cls(SettingStatus.EFFECTIVE, words)

    @classmethod
    def rejected(cls, why: str) -> SettingOutcome:
        """The key is an error, for this reason."""
        return cls(SettingStatus.REJECTED, why)

    @classmethod
    def ignored(cls, why: str) -> SettingOutcome:
        """The key has no effect, and a warning is logged."""
        return cls(SettingStatus.IGNORED, why)


def outcome_of_value(setting: Setting[Any], value: object) -> SettingOutcome:
    """How a key that is a setting is treated; ``value``: its value in another program, "" without one."""
    try:
        if value != "":
            setting.parse(value)
    except ValueError:
        return SettingOutcome.effective(f"with {setting.allowed}; any other value is an error")
    return SettingOutcome.effective()


class HasValues(Protocol):
    """A configuration: every key -> value."""

    @property
    def values(self) -> Mapping[str, Any]: ...


class SameAsSetting(NamedTuple):
    """A default that is the value of another setting, which precedes it in the table."""

    key: str


class TrueIfSetting(NamedTuple):
    """A default that is true if another setting, which precedes it in the table, has this value; else false."""

    key: str
    value: str


class Setting(Generic[T]):
    """One setting of a table, and the attribute of the configuration that returns its value.

    ``parse`` converts the user's value; it raises ``ValueError`` whose text, if any, explains what to do.  ``default``
    is None without a default, ``...`` if the key is required.  With ``is_secret`` the value is never shown.  ``mask``
    makes the shown text of any other value, for example of an address that contains a password by mistake.
    """

    def __init__(
        self, key: str, sentence: str, read: Callable[[object], T], *, type_: str, allowed: str, default: Any, unit: str
    ) -> None:
        self.key = key
        self.description = sentence
        self.parse = read
        self.type = type_
        self.allowed = allowed
        self.default = default
        self.unit = unit
        self.attribute = ""
        self.origin = Origin.SCALA_CONSUMER
        self.is_secret = False
        self.mask: Callable[[str], str] = unmasked

    def masked(self, raw: object) -> str:
        """The user's value as errors, logs and ``repr`` may show it."""
        return HIDDEN if self.is_secret else self.mask(raw if isinstance(raw, str) else repr(raw))

    def __set_name__(self, owner: type[SettingsTable], name: str) -> None:
        self.attribute = name
        self.origin = owner.ORIGIN

    @overload
    def __get__(self, config: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, config: HasValues, owner: type) -> T: ...
    def __get__(self, config: HasValues | None, owner: type) -> Setting[T] | T:
        if config is None:
            return self
        value: T = config.values[self.key]
        return value

    def __set__(self, config: HasValues, value: object) -> None:
        raise AttributeError(
            f"a configuration cannot be changed; with_overrides({{{self.key!r}: …}}) returns a new one"
        )


class SettingsTable:
    """Some settings on one subject, as attributes; ``ConsumerConfig`` inherits every table."""

    __slots__ = ()

    ORIGIN: ClassVar[Origin] = Origin.SCALA_CONSUMER

    values: Mapping[str, Any]

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """A sentence for each conflict between settings; ``values`` has every key, an invalid one with its default.

        ``given``: the keys that were set.
        """
        return []

    @staticmethod
    def without_effect(values: Mapping[str, Any], given: frozenset[str]) -> dict[str, str]:
        """Keys that were set and have no effect with the other settings -> reason; each is logged as a warning."""
        return {}


# --- the types ----------------------------------------------------------------------------------------------------


def integer(
    key: str, default: int | SameAsSetting, sentence: str, *, unit: str = "", low: int = 0, high: int = INT_MAX
) -> Setting[int]:
    """An integer within bounds, both allowed."""

    def read(given: object) -> int:
        if isinstance(given, str):
            # As Integer.parseInt, but for the digits of other scripts.
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", given):
                raise ValueError
            given = int(given)
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise ValueError
        return given

    return Setting(
        key, sentence, read, type_="integer", allowed=f"an integer from {low} to {high}", default=default, unit=unit
    )


def boolean(key: str, default: bool | TrueIfSetting, sentence: str) -> Setting[bool]:
    """Exactly ``true`` or ``false``."""

    def read(given: object) -> bool:
        if isinstance(given, bool):
            return given
        match given:
            case "true":
                return True
            case "false":
                return False
        raise ValueError

    return Setting(key, sentence, read, type_="boolean", allowed="true or false", default=default, unit="")


def text(key: str, default: object, sentence: str, check: Callable[[str], str], allowed: str) -> Setting[str]:
    """A text; ``check`` returns the value to use, or raises ``ValueError``."""

    def read(given: object) -> str:
        if not isinstance(given, str):
            raise ValueError(
                "it must be one text, with commas between its items" if isinstance(given, list | tuple | set) else ""
            )
        return check(given)

    return Setting(key, sentence, read, type_="string", allowed=allowed, default=default, unit="")


def optional_text(key: str, sentence: str, check: Callable[[str], str], allowed: str) -> Setting[str | None]:
    """An optional text; None if it is not set."""
    return cast("Setting[str | None]", text(key, None, sentence, check, allowed))


def secret(key: str, sentence: str, allowed: str) -> Setting[str | None]:
    """An optional text that is never shown."""
    setting = optional_text(key, sentence, lambda given: given, allowed)
    setting.is_secret = True
    return setting


def choice(
    key: str,
    choices: tuple[str, ...],
    sentence: str,
    values_of_other_clients: Mapping[str, str] | None = None,
    *,
    ignore_case: bool = False,
) -> Setting[str]:
    """One of ``choices``; the first is the default.

    ``values_of_other_clients``: value of another client -> the value here.
    """

    def read(given: object) -> str:
        word = given.lower() if ignore_case and isinstance(given, str) else given
        if isinstance(word, str) and word in choices:
            return word
        here = (values_of_other_clients or {}).get(str(word))
        raise ValueError(f"that is the new consumer's name for {here}" if here else "")

    return Setting(key, sentence, read, type_="string", allowed=" or ".join(choices), default=choices[0], unit="")


# --- reading one --------------------------------------------------------------------------------------------------


def default_of(setting: Setting[Any], values: Mapping[str, Any]) -> Any:
    """The value of a setting that was not set, from those that precede it; None without a default."""
    match setting.default:
        case EllipsisType():
            return None
        case SameAsSetting(key):
            return values.get(key)
        case TrueIfSetting(key, value):
            return values.get(key) == value
    return setting.default


def problems_text(problems: list[str]) -> str:
    """All problems of a configuration, a line each."""
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"the configuration has {count}:", *problems])


def invalid_value_text(setting: Setting[Any], raw: object, hint: str) -> str:
    """The error text for an invalid value: what is wrong, and what to do."""
    shown = setting.masked(raw)
    if len(shown) > VALUE_CHARS_MAX:
        shown = f"{shown[:VALUE_CHARS_MAX]}…"
    unit = f", in {setting.unit}" if setting.unit else ""
    otherwise = "" if setting.default in (..., None) else f", or remove it (the default is {default_text(setting)})"
    return f"{setting.key}={shown}: {f'{hint}; ' if hint else ''}set it to {setting.allowed}{unit}{otherwise}"


def default_text(setting: Setting[Any]) -> str:
    """The text of the default."""
    match setting.default:
        case SameAsSetting(key):
            return f"the value of {key}"
        case TrueIfSetting(key, value):
            return f"true with {key}={value}, else false"
        case bool() as default:
            return str(default).lower()
        case tuple() as items:
            return ",".join(map(str, items)) or "none"
    return {None: "none", ...: "must be given"}.get(setting.default) or str(setting.default)


# --- checks of texts ---------------------------------------------------------------------------------------------


def check_name(text: str) -> str:
    """Check a group or client id, as every release does."""
    if not NAME_PATTERN.fullmatch(text):
        illegal = "".join(dict.fromkeys(c for c in text if not NAME_PATTERN.fullmatch(c)))
        raise ValueError(
            f"it is illegal, contains a character other than ASCII alphanumerics, '.', '_' and '-': {illegal!r}"
        )
    return text


def check_group_id(text: str) -> str:
    """Check a group id; it must also be valid in a path, or the member cannot register."""
    check_name(text)
    if text in ("", ".", ".."):
        raise ValueError("it would be a part of paths in ZooKeeper, which do not allow it")
    return text


def check_consumer_id_setting(text: str) -> str:
    """Check a consumer id; the Scala consumer does not check it, and ZooKeeper rejects it later."""
    if re.search(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]", text):
        raise ValueError("it is a part of paths in ZooKeeper, which do not allow '/' and control characters in it")
    return text


def check_health_socket(text: str) -> str:
    """Check ``auto`` or a path; whether a socket can be created there is checked later."""
    if text != "auto" and (not text.startswith("/") or text.endswith("/") or "\0" in text):
        raise ValueError("a path begins with '/', and ends with the name of the socket")
    return text


def check_connect(text: str) -> str:
    """Check servers and chroot.  Blanks around servers and final commas are removed, as in ZooKeeper's client."""
    servers, slash, chroot = text.partition("/")
    if "@" in servers:
        raise ValueError(USER_IN_ADDRESS_ERROR)
    trimmed = [server.strip(JAVA_BLANKS) for server in servers.rstrip("," + JAVA_BLANKS).split(",")]
    for server in trimmed:
        host, colon, port = server.rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server, "2181"
        if not host or re.search(r"\s", host) or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            # A password may contain a "/"; then the "@" is in the chroot.
            raise ValueError(USER_IN_ADDRESS_ERROR if "@" in chroot else f"{server!r} is not HOST:PORT")
    if "," in chroot:
        raise ValueError("write the chroot only once, after the last server")
    if chroot and any(part in ("", ".", "..") for part in chroot.split("/")):
        raise ValueError(f"the chroot {mask_user('/' + chroot)!r} is not a path; it has no '/' at the end")
    return ",".join(trimmed) + slash + chroot

"""``PipelineKey``: the definition of one key of the pipeline file, and the settings that parse its values.  Pure.

The settings are those of ``zkconsumer.config_def``; this module adds durations, lists, paths, URLs and secrets.
``pipeline_keys`` has the table of all keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import unquote, urlsplit

from bridge.spark.option_table import checked_topic, delay_ms
from bridge.spark.pipeline.secret_reference import SECRET_FORMS
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.config_def import HIDDEN, Setting, mask_user, optional_text, secret

POSTGRES_PORT = 5432

_DAY_MS = 86_400_000
_COLUMN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_POSTGRES_URL = re.compile(r"postgres(?:ql)?://([^/?#]+)/([^/?#]+)")
_POSTGRES_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]]+)(?::([0-9]{1,5}))?")


class KeyKind(Enum):
    """What a value is, and how the file may write it."""

    TEXT = "text"
    """A TOML string; a number or a boolean is taken as its text."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    DURATION = "duration"
    """A text with a unit, ``30s``; milliseconds once it is parsed."""

    TEXT_LIST = "list of texts"
    COMMA_LIST = "text with commas"
    """A text with commas between its items, or a TOML list of texts."""

    OFFSETS_JSON = "offsets JSON"
    """JSON in a text, or a TOML table of topics."""

    PATH = "path"
    """A path or a URI; a relative path is relative to the folder of the pipeline file."""

    SECRET = "secret"
    """The place of a secret (``secret_reference``), never the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineKey:
    """One key: its section, and a ``Setting`` with name, meaning, allowed values and parser.

    ``default``: the value without the key, in the form of the file; None: no value.  ``formats``: the formats of the
    section for which the key is valid; empty: all.  ``is_required``: with these formats the key, or one of
    ``excludes``, must be set.  ``excludes``: keys that cannot be set together with this one.  ``needs``: keys that must
    be set together with this one.  ``taken_from``: values of the section's ``connection`` with which the key of another
    section counts, and this one cannot be set.  ``example``: a value for the template as TOML; "": the default.
    ``is_in_template``: whether the template has the key.
    """

    section: str
    setting: Setting[Any]
    kind: KeyKind
    default: object = None
    formats: tuple[str, ...] = ()
    is_required: bool = False
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    taken_from: tuple[str, ...] = ()
    example: str = ""
    is_in_template: bool = True

    @property
    def name(self) -> str:
        """The key as it is written in its section."""
        return self.setting.key

    @property
    def meaning(self) -> str:
        """One or more plain sentences."""
        return self.setting.description

    @property
    def allowed(self) -> str:
        """What the value must be, with its unit."""
        if self.kind is KeyKind.SECRET:
            return SECRET_FORMS
        return f"{self.setting.allowed}, in {self.setting.unit}" if self.setting.unit else self.setting.allowed

    @property
    def default_text(self) -> str:
        """The default as TOML; "" without one."""
        return "" if self.default is None else toml_text(self.default)

    @property
    def rules(self) -> str:
        """When the key must be set and when it cannot be, in sentences; "" if it is optional and always valid."""
        made = []
        if self.is_required:
            other = f" or {' or '.join(self.excludes)}" if self.excludes else ""
            made.append(f"Required{f': this{other}' if other else ''}{self._where(' with ')}.")
        elif self.formats:
            made.append(f"Valid{self._where(' with ')}.")
        if self.excludes and not self.is_required:
            made.append(f"Not together with {' or '.join(self.excludes)}.")
        if self.needs:
            made.append(f"Needs {' and '.join(self.needs)}.")
        if self.taken_from:
            made.append(f"Not with connection = {' or '.join(toml_text(each) for each in self.taken_from)}.")
        return " ".join(made)

    def is_valid_with(self, format_: str | None) -> bool:
        """Whether the section may have the key; ``format_``: its format, None if that is not known."""
        return format_ is None or not self.formats or format_ in self.formats

    def _where(self, before: str) -> str:
        return f"{before}format {' or '.join(self.formats)}" if self.formats else ""


def toml_text(value: object) -> str:
    """A text, a number, a boolean or a sequence of texts as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case list() | tuple():
            return f"[{', '.join(toml_text(each) for each in value)}]"
        case str() if "'" not in value and value.isprintable() and ('"' in value or "\\" in value):
            return f"'{value}'"
        case str():
            return json.dumps(value)  # a JSON string is a TOML string
    raise AssertionError(f"{type(value).__name__} has no form in TOML here")


# --- settings -----------------------------------------------------------------------------------------------------


def filled_text(key: str, sentence: str, allowed: str) -> Setting[str | None]:
    """A text that is not empty."""
    return optional_text(key, sentence, _filled, allowed)


def column_name(key: str, sentence: str) -> Setting[str | None]:
    """The name of a column that SQL needs not quote."""
    return optional_text(key, sentence, _check_column, "the name of a column: letters, digits and _")


def one_of(
    key: str, choices: tuple[str, ...], sentence: str, reasons: Mapping[str, str] | None = None
) -> Setting[str | None]:
    """One of these words; ``reasons``: other words -> why they cannot be set."""

    def check(given: str) -> str:
        if given in choices:
            return given
        raise ValueError((reasons or {}).get(given) or did_you_mean(given, choices).strip(" ()"))

    return optional_text(key, sentence, check, " or ".join(choices))


def path(key: str, sentence: str) -> Setting[str | None]:
    """A path or a URI."""
    return optional_text(key, sentence, _check_path, "a path or a URI")


def duration(key: str, sentence: str, *, low_ms: int = 1, high_ms: int = 365 * _DAY_MS) -> Setting[Any]:
    """A time with its unit; ms once it is parsed."""

    def read(given: object) -> int:
        if isinstance(given, int) or (isinstance(given, str) and given.strip().isdigit()):
            raise ValueError(f'it has no unit: "{given}s" would be seconds')
        if not isinstance(given, str):
            raise ValueError
        time_ms = delay_ms(given)
        if not low_ms <= time_ms <= high_ms:
            raise ValueError(f"the least is {low_ms} ms, and the most is {high_ms} ms")
        return time_ms

    return Setting(
        key,
        sentence,
        read,
        type_="duration",
        allowed='a number with ms, s, m, h or d, like "30s"',
        default=None,
        unit="",
    )


def text_list(key: str, sentence: str) -> Setting[Any]:
    """A list of texts, none of them empty, with one at least; a tuple once it is parsed."""

    def read(given: object) -> tuple[str, ...]:
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise ValueError
        if not given or not all(each.strip() for each in given):
            raise ValueError("it has an empty text" if given else "it is empty")
        return tuple(given)

    return Setting(
        key, sentence, read, type_="list", allowed='a list of texts, like ["a", "upper(b) AS b"]', default=None, unit=""
    )


def secret_place(key: str, sentence: str) -> Setting[str | None]:
    """A secret; the file contains its place."""
    return secret(key, sentence, SECRET_FORMS)


def topic_name(key: str, sentence: str) -> Setting[str | None]:
    """The name of one topic."""
    return optional_text(key, sentence, checked_topic, "the name of a topic")


def registry_url(key: str, sentence: str) -> Setting[str | None]:
    """The address of a schema registry."""
    made = optional_text(key, sentence, _check_registry_url, "http(s)://HOST[:PORT][/PREFIX]")
    made.mask = mask_url
    return made


def postgres_url(key: str, sentence: str) -> Setting[str | None]:
    """The address of a database; ``parse_postgres_url`` has its parts."""

    def check(given: str) -> str:
        parse_postgres_url(given)
        return given

    made = optional_text(key, sentence, check, "postgresql://HOST[:PORT][,HOST[:PORT]…]/DATABASE")
    made.mask = mask_url
    return made


# --- checks -------------------------------------------------------------------------------------------------------


def parse_postgres_url(given: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """The servers, each with host and port, and the database.  Raises ``ValueError`` without a part of the text."""
    if "@" in given:
        raise ValueError("an address must not contain a user or a password; set them as user and password")
    if "?" in given or "#" in given:
        raise ValueError("the address must end with the database; there are keys for the login and for TLS")
    found = _POSTGRES_URL.fullmatch(given)
    if found is None:
        raise ValueError("it has another form")
    servers = []
    for server in found[1].split(","):
        parts = _POSTGRES_HOST.fullmatch(server)
        port = POSTGRES_PORT if parts is None or parts[2] is None else int(parts[2])
        if parts is None or not 0 < port < 65_536:
            raise ValueError("a server is not HOST or HOST:PORT")
        servers.append((parts[1].strip("[]"), port))
    return tuple(servers), unquote(found[2])


def mask_url(given: str) -> str:
    """A URL without what may be a login: the part before ``@`` and the parameters.  Another text is not shown."""
    if "://" not in given:
        return HIDDEN
    return re.sub(r"(?s)([?#]).*", rf"\1{HIDDEN}", mask_user(given))


def _filled(given: str) -> str:
    if not given.strip():
        raise ValueError("it is empty")
    return given


def _check_column(given: str) -> str:
    if not _COLUMN.fullmatch(given):
        raise ValueError
    return given


def _check_path(given: str) -> str:
    if given.startswith("~"):
        raise ValueError("a ~ is not replaced; write the complete path")
    if "\0" in given:
        raise ValueError("it contains a character that no path has")
    return _filled(given)


def _check_registry_url(given: str) -> str:
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        raise ValueError("it is not a URL") from None
    if "@" in parts.netloc:
        raise ValueError(
            "an address must not contain a user or a password; set them as registry-user and registry-password"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("it is not the URL of a server")
    if parts.query or parts.fragment or not given.isascii() or any(char <= " " for char in given):
        raise ValueError("it has more than a host, a port and a path")
    return given

"""Keeps secrets out of Spark's plans: options with a secret go to the source in a file, not in ``.option``.

    options of the file --split--> public options         .options(**), which plans and pages of Spark show
                        `--------> a properties file      the option consumer.config; readable for this user alone

The source reads the file on the driver, and a task gets the settings of its connection without the option.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bridge.spark.option_table import BROKER_OPTIONS, GROUP_OPTIONS
from bridge.spark.pipeline.secret_reference import MaybeSecret, ReadFile, resolve_secrets
from zkconsumer.properties import decode_properties

FILE_NAME = "source.properties"
CONSUMER_CONFIG = "consumer.config"


def options_with_secret_file(
    options: Mapping[str, MaybeSecret], folder: Path, environment: Mapping[str, str], read_file: ReadFile
) -> dict[str, str]:
    """The options for ``.options(**)``; if one has a secret, a file in ``folder`` has it.

    The file begins with what the user's ``consumer.config`` contains.  Raises ``SecretUnavailableError`` with a line
    for each missing secret, and ``OSError``.
    """
    public = {name: value for name, value in options.items() if isinstance(value, str)}
    hidden = {name: value for name, value in options.items() if not isinstance(value, str)}
    if not hidden:
        return public
    secrets = resolve_secrets(hidden, environment, read_file)
    lines = [f"{_config_key(name)}={_escaped(text)}\n" for name, text in secrets.items()]
    given = public.get(CONSUMER_CONFIG)
    before = decode_properties(read_file(given)) if given is not None else ""
    file = folder / FILE_NAME
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", newline="\n") as out:
        # The empty line: a file may end with a backslash, which would join the first secret to its last value.
        out.write(f"{before}\n\n{''.join(lines)}")
    return public | {CONSUMER_CONFIG: str(file)}


def _config_key(option: str) -> str:
    """The name of an option's setting in a properties file."""
    return GROUP_OPTIONS.get(option) or BROKER_OPTIONS[option]


def _escaped(text: str) -> str:
    """A value for a properties file, which Java and ``parse_properties`` read as this text."""
    return "".join(f"\\u{unit:04x}" if not 0x21 <= unit < 0x7F or unit == 0x5C else chr(unit) for unit in _units(text))


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]

"""The plan file: written atomically, parsed strictly.

    write_plan_file   replaces the file completely, or not at all (``atomic_file``)
    read_plan_file    bytes, at most ``PLAN_BYTES_MAX`` -> lines -> ``plan_json``

The pieces beside the control znode contain the same bytes (``plan_to_bytes``, ``plan_from_bytes``).  Only the user may
read the file (0600), since access lists contain hashes of passwords.
"""

from __future__ import annotations

import io
import stat
from typing import TYPE_CHECKING

from bridge.migration.plan.atomic_file import write_atomically
from bridge.migration.plan.json_object_reader import InvalidJsonError
from bridge.migration.plan.plan_header import SCHEMA
from bridge.migration.plan.plan_json import parse_plan, plan_lines
from zkconsumer.errors import PreconditionFailed, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.plan.migration_plan import MigrationPlan

PLAN_BYTES_MAX = 256 * 1024 * 1024
"""Ten times a plan of 100,000 partitions."""

SCHEMA_BYTES = 200
"""This many bytes show whether a file is a plan: the schema comes first."""


class InvalidPlanFileError(PreconditionFailed):
    """A file is no plan, or was altered; use the file as ``migrate plan`` wrote it, or plan again."""


class PlanNotWrittenError(UnavailableError):
    """The plan cannot be written to its file, and nothing was changed; free some space, or name another file."""


def plan_to_bytes(plan: MigrationPlan) -> bytes:
    """The bytes of the file."""
    return "".join(plan_lines(plan)).encode()


def plan_from_bytes(data: bytes) -> MigrationPlan:
    """The plan in these bytes.  Raises ``InvalidPlanFileError``."""
    if len(data) > PLAN_BYTES_MAX:
        raise InvalidPlanFileError(f"more than {PLAN_BYTES_MAX} bytes: this is no plan")
    try:
        # Never decode the whole text at once: that would need the same memory again.
        return parse_plan(io.TextIOWrapper(io.BytesIO(data), encoding="ascii", newline="\n"))
    except UnicodeDecodeError as error:
        raise InvalidPlanFileError(f"byte {error.start} is not ASCII: this is no plan") from error
    except InvalidJsonError as error:
        raise InvalidPlanFileError(str(error)) from error


def read_plan_file(path: Path) -> MigrationPlan:
    """The plan in a file.  Raises ``InvalidPlanFileError``, with the path."""
    try:
        with path.open("rb") as file:
            data = file.read(PLAN_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidPlanFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return plan_from_bytes(data)
    except InvalidPlanFileError as error:
        raise InvalidPlanFileError(f"{path}: {error}") from error


def check_plan_file_target(path: Path, group: str) -> None:
    """Check whether a plan of this group may be written there: only a plan of the same group may be replaced.

    Raises ``PreconditionFailed`` for any other existing file, ``PlanNotWrittenError`` for one that cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise PreconditionFailed(f"{path} is not a regular file: name another file")
        with path.open("rb") as file:
            start = file.read(SCHEMA_BYTES)
            file.seek(0)
            is_plan = start.startswith(f'{{"schema":"{SCHEMA}",'.encode())
            is_of_group = is_plan and f'"group":"{group}",'.encode() in file.read(SCHEMA_BYTES + len(group) + 200)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PlanNotWrittenError(f"{path} cannot be read: {error.strerror}") from error
    if not is_of_group:
        raise PreconditionFailed(f"{path} exists and is no plan of group {group}: name another file, or remove it")


def write_plan_file(path: Path, plan: MigrationPlan) -> None:
    """Write it so that the file is the old one or the complete new one, whatever happens.

    Raises ``PlanNotWrittenError`` with the path; then no temporary file remains.
    """
    try:
        write_atomically(path, plan_lines(plan), replace=True)
    except OSError as error:
        raise PlanNotWrittenError(f"the plan cannot be written to {path}: {error.strerror or error}") from error

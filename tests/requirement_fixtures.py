"""What tests do when something that they need is not there: a clear skip; in CI (``CI=true``) a failure."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.debian_packages import SystemProgram, unreachable_packages


def report_lack(reason: str, package: str | None = None) -> NoReturn:
    """Skip the test, in CI fail it.  ``reason``: what is missing and what to do.

    ``package``: the Debian package that has it; the test is skipped in CI too if Debian's archive did not answer when
    ``.ci/run`` was about to install it.
    """
    is_outside = package is not None and package in unreachable_packages()
    if os.environ.get("CI") == "true" and not is_outside:
        pytest.fail(f"in CI nothing real is skipped: {reason}")
    pytest.skip(f"{reason} (Debian's archive did not answer)" if is_outside else reason)


def require_program(program: SystemProgram) -> str:
    """The path of the program; else ``report_lack``."""
    path = program.find()
    if path is None:
        report_lack(program.lack, program.package)
    return path

"""``promtool`` of Prometheus, which checks and evaluates alert rules."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
PACKAGE = "prometheus"


def require_promtool() -> str:
    """The path of ``promtool``; without it the test is skipped.

    In CI (``CI=true``) the test fails instead, if the README names Debian's package in the text of the second command.
    """
    path = shutil.which("promtool")
    if path is not None:
        return path
    reason = f"promtool is missing: apt install {PACKAGE}"
    if os.environ.get("CI") == "true" and is_package_named(README.read_text("utf-8")):
        pytest.fail(f"in CI nothing real is skipped: {reason}")
    pytest.skip(reason)


def is_package_named(readme: str) -> bool:
    """Whether the text of the second command names the Debian package of ``promtool``."""
    found = re.search(r"^Run every check.*?^## ", readme, re.MULTILINE | re.DOTALL)
    assert found is not None, "the README has no second command"
    return f"`{PACKAGE}`" in found[0]

"""Builds a compiled module of the package with other compiler options, for tests."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from tests.requirement_fixtures import report_lack

ROOT = Path(__file__).resolve().parents[1]


def compiler() -> str:
    """The C compiler; without one the test is skipped, and in CI it fails."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        report_lack("there is no C compiler on this machine: install gcc or clang")
    return found


def build(source: str, to: Path, *options: str, python: bool = True) -> Path:
    """Compile ``source``, a path below the root, to ``to``: a module of this Python, or else (``python``) a program."""
    include = ["-I", str(ROOT / "zkconsumer" / "include")]
    if python:
        include += ["-I", sysconfig.get_paths()["include"], "-shared", "-fPIC"]
        if sys.platform == "darwin":
            include += ["-undefined", "dynamic_lookup"]
    command = [compiler(), "-std=c11", "-g", *include, *options, str(ROOT / source), "-o", str(to)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


def load(path: Path, name: str) -> ModuleType:
    """Import the module that was built; ``name`` ends as its init function does."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

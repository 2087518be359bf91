"""Systems and interpreters that are not supported are refused at import, with a reason and with what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zkconsumer.platforms import unsupported_reason

WINDOWS = "sys.platform = 'win32'"
WITHOUT_GIL = "sys._is_gil_enabled = lambda: False"
WITH_GIL = "sys._is_gil_enabled = lambda: True"
"""Free-threaded builds have this function; PYTHON_GIL=1 makes it say True."""


def imported(module: str, before: str) -> subprocess.CompletedProcess[str]:
    """Import it in an interpreter of its own that says ``before`` of itself."""
    return run(f"import sys; {before}; import {module}")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "module", ["zkconsumer", "zkconsumer.streams", "zkconsumer.cli", "bridge", "pyspark_zkconsumer"]
)
@pytest.mark.parametrize(
    ("before", "why", "advice"),
    [
        (WINDOWS, "does not run on Windows", "WSL 2"),
        (WITHOUT_GIL, "without the global interpreter lock", "PYTHON_GIL=1"),
    ],
    ids=["windows", "no-gil"],
)
def test_an_import_where_it_does_not_run_is_refused_with_a_reason(
    module: str, before: str, why: str, advice: str
) -> None:
    done = imported(module, before)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("zkconsumer.errors.UnsupportedPlatform: zkconsumer does not run")
    assert why in line
    assert advice in line


def test_the_refusal_is_an_import_error() -> None:
    done = run(f"import sys; {WINDOWS}\ntry: import zkconsumer\nexcept ImportError: sys.exit(7)\n")
    assert done.returncode == 7, done.stderr


def test_it_is_refused_before_any_other_module_is_imported() -> None:
    ours = "print(sorted(name for name in sys.modules if name.startswith('zkconsumer.')))"
    done = run(f"import sys; {WINDOWS}\ntry: import zkconsumer\nexcept ImportError: {ours}\n")
    assert done.stdout.strip() == "['zkconsumer.errors', 'zkconsumer.platforms', 'zkconsumer.version']", done.stderr


def test_a_free_threaded_build_whose_gil_is_on_is_taken() -> None:
    assert imported("zkconsumer, bridge", WITH_GIL).returncode == 0


@pytest.mark.parametrize("system", ["linux", "darwin", "freebsd14"])
def test_posix_systems_with_a_gil_are_taken(system: str) -> None:
    assert unsupported_reason(system, has_gil=True) == ""


@pytest.mark.parametrize("system", ["win32", "cygwin", "emscripten", "wasi"])
def test_other_systems_are_refused_with_and_without_a_gil(system: str) -> None:
    for has_gil in (True, False):
        assert repr(system) in unsupported_reason(system, has_gil)

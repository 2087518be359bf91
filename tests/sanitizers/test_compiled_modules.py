"""The compiled modules under AddressSanitizer, UBSan and ThreadSanitizer: their own tests in a Python that loads such a
build of them.

Python itself is not instrumented, so the sanitizer's library is loaded before it.  Leaks are not looked for here
(Python frees little at its end): ``test_messages`` has a test of its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extension_builder import ROOT, build, compiler
from tests.requirement_fixtures import report_lack
from zkconsumer import extensions

COPIED = ("bridge", "zkconsumer", "pyspark_zkconsumer", "tests", "pyproject.toml")

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="LD_PRELOAD is Linux's")

IN_CI = [
    "tests/hostile/test_records_hostile.py",
    "tests/unit/kafka/test_stream_batches.py",
    "tests/unit/kafka/test_messages.py",
    "tests/unit/kafka/test_consumer_record.py",
    "tests/unit/kafka/test_receive.py",
]
ALL = [
    *IN_CI,
    "tests/unit/test_streams.py",
    "tests/property/test_records_property.py",
    "tests/unit/wire/test_records.py",
]
"""Test files that use every function of the compiled modules."""


def sanitizer(name: str) -> str:
    """The path of its library."""
    found = subprocess.run([compiler(), f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not os.path.isabs(path):
        report_lack(f"lib{name}.so is missing: install the Debian package lib{name}8 or libgcc-12-dev")
    return path


def sanitized_tree(tmp_path: Path, *options: str) -> Path:
    """A copy of the package whose compiled modules were built with these options."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, tree / name)
    for name in extensions.EXTENSION_MODULES:
        path = name.replace(".", "/")
        build(f"{path}.c", tree / f"{path}.abi3.so", "-O1", "-fno-omit-frame-pointer", *options)
    return tree


def run(tree: Path, library: str, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LD_PRELOAD": library, "PYTHONPATH": str(tree), **environment}
    env.pop("ZKCONSUMER_NO_EXTENSIONS", None)
    return subprocess.run(
        [sys.executable, *command], cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=1_500
    )


def pytest_under_asan(tmp_path: Path, files: list[str]) -> None:
    tree = sanitized_tree(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not nightly and not real", "--timeout=600"]
    # A subprocess, and memory that a sanitizer keeps.
    skipped = "not ten_thousand_kept and not other_implementation and not does_not_allocate_beyond"
    done = run(
        tree, sanitizer("asan"), [*command, "-k", skipped, *files],
        ASAN_OPTIONS="detect_leaks=0:abort_on_error=1", PYTHONMALLOC="malloc",
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert " passed" in done.stdout


@pytest.mark.timeout(600)
def test_hostile_record_sets_and_the_hand_out_pass_under_asan_and_ubsan(tmp_path: Path) -> None:
    pytest_under_asan(tmp_path, IN_CI)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_all_tests_of_the_compiled_modules_pass_under_asan_and_ubsan(tmp_path: Path) -> None:
    pytest_under_asan(tmp_path, ALL)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_threads_that_switch_at_every_step_pass_under_tsan(tmp_path: Path) -> None:
    """One thread iterates while others stop, reset and start partitions; ``sys.setswitchinterval(1e-6)``."""
    tree = sanitized_tree(tmp_path, "-fsanitize=thread")
    log = tmp_path / "tsan"
    done = run(
        tree, sanitizer("tsan"), ["tests/sanitizers/switching_program.py", "60"],
        TSAN_OPTIONS=f"halt_on_error=0:exitcode=66:log_path={log}",
    )  # fmt: skip
    found = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("tsan.*"))
    assert done.returncode == 0, (done.stdout + done.stderr + found)[-6000:]
    assert "lost 0, twice 0" in done.stdout

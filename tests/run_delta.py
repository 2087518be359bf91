"""Runs ``tests/delta`` with the release of pyspark for which Delta is compiled.

    python tests/run_delta.py [pytest arguments]

The release is installed once into a folder of the sandbox's cache; for the tests the folder is before the packages of
this environment, so all others are the same.  Where it cannot be installed (no network) the tests are skipped with the
reason; in CI (``CI=true``) that is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from zkconsumer.testing.sandbox import cache

ROOT = Path(__file__).resolve().parent.parent
PYSPARK = "4.2.0"
NOT_COMPRESSED = "--config-settings=--build-option=--compression=stored"
"""pip makes a wheel of 450 MB from the source archive of pyspark and unpacks it: half of the CPU is its compression."""
LINES_SHOWN = 5
PYTEST = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--durations=5", "--durations-min=10"]


def ensure_pyspark() -> Path:
    """The folder with pyspark; raises ``CalledProcessError`` with the output of pip."""
    target = cache.folder("spark") / f"pyspark-{PYSPARK}"
    with cache.lock(cache.folder("spark") / ".pyspark.lock"):
        if target.exists():
            return target
        with cache.atomic_folder(target) as building:
            pip = ["install", "--quiet", "--no-deps", NOT_COMPRESSED, "--target", str(building), f"pyspark=={PYSPARK}"]
            # The constraints of the test environment have another release.
            environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
            subprocess.run(
                [sys.executable, "-m", "pip", *pip],
                env=environment, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
    return target


def main() -> int:
    try:
        pyspark = ensure_pyspark()
    except subprocess.CalledProcessError as error:
        lines = "\n".join(str(error.output).splitlines()[-LINES_SHOWN:])
        is_failure = os.environ.get("CI") == "true"
        word = "in CI nothing is skipped" if is_failure else "skipped"
        print(f"tests/delta: {word}: pyspark {PYSPARK} cannot be installed: {lines}", flush=True)
        return 1 if is_failure else 0
    path = [str(pyspark), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [*PYTEST, "-m", "real and not nightly", "tests/delta", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

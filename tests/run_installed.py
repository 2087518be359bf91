"""Builds the source archive and a wheel, checks them, and tests the wheel in an empty environment.

    python tests/run_installed.py build     what CI runs, with this Python
    python tests/run_installed.py pythons   the wheel of this Python with each of ``PYTHONS``, more tests; in nightly
    python tests/run_installed.py here      only the tests, of the zkconsumer that this Python has; for cibuildwheel

The tests run in a folder without the packages, so that they cannot import those of the tree.  All files are in a
temporary folder.  A Python that this machine does not have is named and left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]  # `here` runs where the packages of the tree are not

from release_checks import content, file_problems, tracked_files, tree_version  # noqa: E402

BUILD_TOOLS = ("build==1.6.1", "setuptools==84.2.1", "twine==7.0.0", "wheel==0.48.0")
"""Not in the environment of the tests, which needs none of them."""
TEST_TOOLS = ("hypothesis>=6.100", "kafka-python>=3.0", "psutil>=5.9", "pytest>=8.2", "pytest-timeout>=2.3")
SMALL = ("tests/unit/wire",)
"""Compiled decoders, formats of all APIs."""
NEEDS_C_SOURCES = "tests/unit/kafka/test_partition_stop_interleavings.py"
LARGE = ("tests/unit/wire", "tests/unit/kafka", f"--ignore={NEEDS_C_SOURCES}")
PYTHONS = ("3.11", "3.12", "3.13")
VERSIONS = Path.home() / ".pyenv" / "versions"
FOREIGN = """
import importlib.util, os, sys, zkconsumer
from zkconsumer import extensions
site = os.path.realpath(sys.argv[1])
for name in ("zkconsumer", "bridge", "pyspark_zkconsumer"):
    path = os.path.realpath(importlib.util.find_spec(name).origin)
    assert path.startswith(site + os.sep), f"{path} is not in {site}"
missing = {name: why for name, why in extensions.status().items() if why != extensions.IN_USE}
assert not missing, f"compiled modules that are not in use: {missing}"
print("Python", sys.version.split()[0], "zkconsumer", zkconsumer.__version__, "of", site)
"""
"""A program that fails unless the packages are the installed ones, with all compiled modules."""


def run(*words: str | Path, cwd: Path, python_path: str = "") -> None:
    """Show the command, run it; raises ``CalledProcessError``."""
    print("+", *words, flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, cwd=cwd, check=True, env=environment | ({"PYTHONPATH": python_path} if python_path else {}))


def copy_tree(to: Path) -> list[str]:
    """The files of the tree, without what earlier builds left; returns their names."""
    names = [name for name in tracked_files() if (ROOT / name).is_file()]
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    return names


def build(work: Path) -> Path:
    """The wheel that is built from the source archive; raises ``SystemExit`` if one of the files is not complete."""
    tools, tree = work / "tools", work / "tree"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", tools, *BUILD_TOOLS, cwd=work)
    tracked = copy_tree(tree)
    options = ("-q", "--no-isolation", "--outdir")
    # Without a format, build makes the wheel from the source archive.
    run(sys.executable, "-m", "build", *options, work / "dist", tree, cwd=work, python_path=str(tools))
    run(sys.executable, "-m", "build", *options, work / "direct", "--wheel", tree, cwd=work, python_path=str(tools))
    files = sorted((work / "dist").iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=work, python_path=str(tools))
    problems = file_problems(work / "dist", tracked, tree_version())
    [wheel], [direct] = (sorted((work / folder).glob("*.whl")) for folder in ("dist", "direct"))
    ours, theirs = content(wheel), content(direct)
    different = sorted(
        name
        for name in ours.keys() | theirs.keys()
        # A compiler writes the path of the source into a module.
        if (ours.get(name) != theirs.get(name) and not name.endswith(".so")) or (name in ours) != (name in theirs)
    )
    problems += [f"{name} differs in the wheel from the source archive and in that from the tree" for name in different]
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"{len(ours)} files in {wheel.name}: complete, and the same from the tree and the source archive", flush=True)
    return wheel


def check_here(python: str | Path, folder: Path, tests: Sequence[str]) -> None:
    """Run ``tests`` in ``folder``, which has no packages, with the zkconsumer that is installed in ``python``."""
    asked = "import sysconfig; print(sysconfig.get_path('platlib'), sysconfig.get_path('scripts'), sep='\\n')"
    output = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout
    site, scripts = output.splitlines()
    run(python, "-c", FOREIGN, site, cwd=folder)
    run(Path(scripts) / "zkconsumer", "demo", cwd=folder)
    options = ("-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not real and not nightly")
    run(python, "-m", "pytest", *options, *tests, cwd=folder)


def check_wheel(wheel: Path, python: str | Path, work: Path, tests: Sequence[str], extra: str) -> None:
    """An empty environment of ``python``: first without the tools of the tests, since a user has none of them."""
    environment, folder = work / "environment", work / "tests-alone"
    for each in (environment, folder):
        shutil.rmtree(each, ignore_errors=True)
    run(python, "-m", "venv", environment, cwd=work)
    inside, constraints = environment / "bin" / "python", ROOT / "tests" / "constraints.txt"
    install = (inside, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "-c", constraints)
    run(*install, wheel, cwd=work)
    run(environment / "bin" / "zkconsumer", "--version", "-v", cwd=work)
    run(*install, f"{wheel}[{extra}]", *TEST_TOOLS, cwd=work)
    folder.mkdir()
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    check_here(inside, folder, tests)


def find_python(version: str) -> str | None:
    """A Python of this release: that which runs this, one of pyenv, or one on the path; None without one."""
    if version == sysconfig.get_python_version():
        return sys.executable
    newest = sorted(VERSIONS.glob(f"{version}.*/bin/python{version}"), key=lambda path: path.stat().st_mtime)
    return str(newest[-1]) if newest else shutil.which(f"python{version}")


def main() -> int:
    asked = sys.argv[1:]
    if asked not in (["build"], ["pythons"], ["here"]):
        print(__doc__, file=sys.stderr)
        return 2
    if asked == ["here"]:
        check_here(sys.executable, ROOT, SMALL)
        return 0
    with tempfile.TemporaryDirectory(prefix="zkconsumer-installed-") as name:
        work = Path(name)
        wheel = build(work)
        if asked == ["build"]:
            check_wheel(wheel, sys.executable, work, SMALL, "fast,metrics")
            return 0
        failed = []
        for version in PYTHONS:
            python = find_python(version)
            if python is None:
                print(f"Python {version}: left out, this machine does not have it", flush=True)
                continue
            try:
                check_wheel(wheel, python, work, LARGE, "test")
            except subprocess.CalledProcessError as error:
                failed.append(version)
                print(f"Python {version}: {error}", flush=True)
    print("failed with Python: " + ", ".join(failed) if failed else "passed with each Python", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a release must be like: the tag, and the files that are uploaded.

    python tests/release_checks.py tag v1.2.3     exits with 1 and a reason if the tree is not that release
    python tests/release_checks.py files FOLDER   the same if a source archive or a wheel in the folder is not complete

Without the packages of the tests: the release workflow runs this file as it is.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("zkconsumer", "bridge", "pyspark_zkconsumer")
NOT_INSTALLED = (".c", ".h")
"""Endings of files in the packages that only a compiler reads."""
COMPILED = ("base/_arrow", "base/_consumer_records", "base/_delivery", "base/_sockets", "wire/_records")
"""A module that is missing here was not compiled, and reading is slower then: such a wheel is not released."""
MADE_BY_SETUPTOOLS = re.compile(r"PKG-INFO|setup\.cfg|zkconsumer\.egg-info/.*")
LICENSES = ("LICENSE", "bridge/web/static/vendor/uplot/LICENSE")
LICENSE_EXPRESSION = "Apache-2.0 AND MIT"


def tree_version(root: Path = ROOT) -> str:
    """The version in ``zkconsumer/version.py``, without importing the package."""
    text = (root / "zkconsumer" / "version.py").read_text("utf-8")
    return re.findall(r'(?m)^__version__ = "(.+)"$', text)[0]


def tag_problems(tag: str, version: str, citation: str, changelog: str) -> list[str]:
    """Why the tree with these texts is not the release ``tag``; empty if it is."""
    problems = []
    if tag != f"v{version}":
        problems.append(f"the tag is {tag}, but zkconsumer/version.py has {version}, whose tag is v{version}")
    cited = re.findall(r"(?m)^version: (\S+)$", citation)
    if cited != [version]:
        problems.append(
            f"CITATION.cff has the version {' '.join(cited) or 'of nothing'}, zkconsumer/version.py {version}"
        )
    heading = re.findall(r"(?m)^## (.*)$", changelog)[:1]
    if not re.fullmatch(re.escape(version) + r" \(\d{4}-\d{2}-\d{2}\)", "".join(heading)):
        problems.append(
            f"the first heading of CHANGELOG.md is {heading}, and must be '## {version} (YYYY-MM-DD)', the date of "
            "the tag"
        )
    return problems


def tracked_files(root: Path = ROOT) -> list[str]:
    """The files of the tree, as git names them; raises ``CalledProcessError`` outside of a clone."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name]


def sdist_problems(names: Iterable[str], tracked: Iterable[str]) -> list[str]:
    """``names`` without the first folder.  A source archive has the whole tree: who builds from it can test it too."""
    found = {name for name in names if not MADE_BY_SETUPTOOLS.fullmatch(name)}
    expected = set(tracked)
    return [
        *(f"the source archive lacks {name}" for name in sorted(expected - found)),
        *(f"the source archive has {name}, which is not in the tree" for name in sorted(found - expected)),
    ]


def wheel_problems(names: Iterable[str], metadata: Message, tracked: Iterable[str]) -> list[str]:
    """A wheel has the packages without the C sources, four compiled modules, and the licences."""
    names = set(names)
    info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    found = {name for name in names if not name.startswith(info)}
    expected = {name for name in tracked if name.partition("/")[0] in PACKAGES and not name.endswith(NOT_INSTALLED)}
    expected |= {f"zkconsumer/{name}.abi3.so" for name in COMPILED}
    missing_licenses = [name for name in LICENSES if f"{info}/licenses/{name}" not in names]
    problems = [
        *(f"the wheel lacks {name}" for name in sorted(expected - found)),
        *(f"the wheel has {name}, which is not in the packages of the tree" for name in sorted(found - expected)),
        *(f"the wheel lacks the licence {name}" for name in missing_licenses),
    ]
    if metadata["License-Expression"] != LICENSE_EXPRESSION:
        problems.append(f"License-Expression is {metadata['License-Expression']}, not {LICENSE_EXPRESSION}")
    if sorted(metadata.get_all("License-File", [])) != sorted(LICENSES):
        problems.append(f"License-File is {metadata.get_all('License-File')}, not {list(LICENSES)}")
    return problems


def content(wheel: Path) -> dict[str, bytes]:
    """Name -> bytes of each file of a wheel, without RECORD, which follows from them."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist() if not name.endswith(".dist-info/RECORD")}


def file_problems(folder: Path, tracked: Iterable[str], version: str) -> list[str]:
    """What is wrong with the files of a release in ``folder``: one source archive and at least one wheel."""
    tracked = list(tracked)
    sdists, wheels = sorted(folder.glob("*.tar.gz")), sorted(folder.glob("*.whl"))
    others = sorted({each.name for each in folder.iterdir()} - {each.name for each in (*sdists, *wheels)})
    problems = [f"{folder} has {name}, which is no part of a release" for name in others]
    if [each.name for each in sdists] != [f"zkconsumer-{version}.tar.gz"]:
        problems.append(f"{folder} has {[each.name for each in sdists]} instead of zkconsumer-{version}.tar.gz")
    if not wheels:
        problems.append(f"{folder} has no wheel")
    for path in sdists:
        with tarfile.open(path) as opened:
            names = [each.name.partition("/")[2] for each in opened.getmembers() if each.isfile()]
        problems += [f"{path.name}: {each}" for each in sdist_problems(names, tracked)]
    for path in wheels:
        if not path.name.startswith(f"zkconsumer-{version}-cp311-abi3-"):
            problems.append(f"{path.name} is not zkconsumer-{version}-cp311-abi3-PLATFORM.whl")
            continue
        files = content(path)
        metadata = email.message_from_bytes(files[f"zkconsumer-{version}.dist-info/METADATA"])
        problems += [f"{path.name}: {each}" for each in wheel_problems([*files], metadata, tracked)]
    return problems


def main() -> int:
    match sys.argv[1:]:
        case ["tag", tag]:
            texts = [(ROOT / name).read_text("utf-8") for name in ("CITATION.cff", "CHANGELOG.md")]
            problems = tag_problems(tag, tree_version(), *texts)
        case ["files", folder]:
            problems = file_problems(Path(folder), tracked_files(), tree_version())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print("\n".join(problems) or "as a release must be", file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Compiled modules: which are in use, and that out of a zip no other user can choose what is loaded.

The programs run in processes of their own: a compiled module is loaded once.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package_zip import compiled_files, make_zip
from zkconsumer import extensions

RUN_TIMEOUT_S = 60
IN_USE = dict.fromkeys(extensions.EXTENSION_MODULES, "in use")

are_built = pytest.mark.skipif(
    len(compiled_files()) < len(extensions.EXTENSION_MODULES), reason="installed without a compiler"
)
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
OTHER_USER = 12345

PROGRAM = """
import json
from zkconsumer import extensions
from zkconsumer.wire import compiled
found = {"root": str(extensions.PACKAGE_ROOT), "status": extensions.status(), "file": None}
if compiled.RECORD_DECODER is not None:
    compiled.RECORD_DECODER.crc32(b"used", 2)
    found["file"] = compiled.RECORD_DECODER.__file__
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_zip(tmp_path_factory.mktemp("package") / "zkconsumer.zip")


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    """The folder for temporary files of the program."""
    made = tmp_path / "tmp"
    made.mkdir()
    made.chmod(0o1777)
    return made


def load(archive: Path, tmp: Path, **environment: str) -> dict[str, object]:
    """What a process says that has the package from this zip, or from this folder."""
    told = {"PYTHONPATH": str(archive), "TMPDIR": str(tmp), extensions.DISABLE_VARIABLE: "", **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **told}, cwd=tmp, capture_output=True, text=True,
        timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    assert found["root"] == str(archive)
    return found


def home(tmp: Path) -> Path:
    return tmp / f"zkconsumer-{os.geteuid()}"


def kept(tmp: Path) -> list[Path]:
    """What is in the folder that stays."""
    return sorted(home(tmp).iterdir())


@are_built
def test_they_are_in_use_where_they_are_installed(tmp: Path) -> None:
    assert load(Path(__file__).parents[2], tmp)["status"] == IN_USE
    assert list(tmp.iterdir()) == []


def test_the_switch_leaves_them_out(tmp: Path, archive: Path) -> None:
    found = load(archive, tmp, **{extensions.DISABLE_VARIABLE: "1"})
    why = f"not in use: the environment variable {extensions.DISABLE_VARIABLE} is set"
    assert found["status"] == dict.fromkeys(extensions.EXTENSION_MODULES, why)
    assert list(tmp.iterdir()) == []


# --- out of a zip -----------------------------------------------------------------------------------------------------


@are_built
def test_out_of_a_zip_they_are_loaded_from_a_folder_of_this_user(tmp: Path, archive: Path) -> None:
    for _ in range(2):
        found = load(archive, tmp)
        assert found["status"] == IN_USE
        assert found["file"] in map(str, kept(tmp))
    assert stat.S_IMODE(home(tmp).stat().st_mode) == 0o700
    assert len(kept(tmp)) == len(extensions.EXTENSION_MODULES)
    contents = {file.read_bytes() for file in compiled_files()}
    assert {file.read_bytes() for file in kept(tmp)} == contents


@are_built
def test_many_processes_at_once_load_whole_files(tmp: Path, archive: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(archive), "TMPDIR": str(tmp), extensions.DISABLE_VARIABLE: ""}
    command = [sys.executable, "-c", PROGRAM]
    started = [subprocess.Popen(command, env=environment, cwd=tmp, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in started:
        out, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        assert json.loads(out)["status"] == IN_USE
    assert len(kept(tmp)) == len(extensions.EXTENSION_MODULES)


def test_a_zip_without_them_says_so(tmp: Path, tmp_path: Path) -> None:
    bare = make_zip(tmp_path / "bare.zip", with_compiled=False)
    why = f"not in use: it cannot be loaded: {bare} does not contain it for this system and this Python"
    assert load(bare, tmp)["status"] == dict.fromkeys(extensions.EXTENSION_MODULES, why)
    assert list(tmp.iterdir()) == []


@are_built
def test_what_does_not_load_is_not_in_use_and_why(tmp: Path, tmp_path: Path) -> None:
    """As from a zip that was made on another system."""
    foreign = make_zip(tmp_path / "foreign.zip", with_compiled=False)
    with zipfile.ZipFile(foreign, "a") as made:
        for file in compiled_files():
            made.writestr(str(file.relative_to(Path(__file__).parents[2])), b"\x7fELF of another system")
    found = load(foreign, tmp)["status"]
    assert isinstance(found, dict)
    assert all(each.startswith("not in use: it cannot be loaded: ") for each in found.values())


# --- another user -----------------------------------------------------------------------------------------------------


def by_a_link(folder: Path, elsewhere: Path) -> None:
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)


def by_a_link_to_nothing(folder: Path, elsewhere: Path) -> None:
    folder.symlink_to(elsewhere)


def by_a_folder_for_all(folder: Path, _: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def by_a_folder_for_a_group(folder: Path, _: Path) -> None:
    folder.mkdir()
    folder.chmod(0o770)


def by_a_file(folder: Path, _: Path) -> None:
    folder.write_bytes(b"")


def by_a_folder_of_another(folder: Path, _: Path) -> None:
    folder.mkdir(mode=0o755)
    os.chown(folder, OTHER_USER, OTHER_USER)


@are_built
@pytest.mark.parametrize(
    "take",
    [
        by_a_link, by_a_link_to_nothing, by_a_folder_for_all, by_a_folder_for_a_group, by_a_file,
        pytest.param(by_a_folder_of_another, marks=is_root),
    ],
)  # fmt: skip
def test_a_folder_that_another_user_has_taken_is_left_alone(
    take: Callable[[Path, Path], None], tmp: Path, tmp_path: Path, archive: Path
) -> None:
    """A folder of its own takes its place, and nothing of it stays."""
    take(home(tmp), elsewhere := tmp_path / "elsewhere")
    found = load(archive, tmp)
    assert found["status"] == IN_USE
    assert str(found["file"]).startswith(f"{tmp}/zkconsumer-")
    assert Path(str(found["file"])).parent != home(tmp)
    assert list(tmp.iterdir()) == [home(tmp)]
    assert not elsewhere.exists() or list(elsewhere.iterdir()) == []
    assert not home(tmp).is_dir() or kept(tmp) == []


def another_content(file: Path, _: Path) -> None:
    file.write_bytes(b"something else")


def a_link_to_the_right_content(file: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(elsewhere)


def a_file_that_others_can_write(file: Path, _: Path) -> None:
    file.chmod(0o666)


def a_pipe(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_file_of_another(file: Path, _: Path) -> None:
    os.chown(file, OTHER_USER, OTHER_USER)


@are_built
@pytest.mark.parametrize(
    "change",
    [
        another_content, a_link_to_the_right_content, a_file_that_others_can_write, a_pipe,
        pytest.param(a_file_of_another, marks=is_root),
    ],
)  # fmt: skip
def test_a_file_that_is_not_ours_is_replaced(
    change: Callable[[Path, Path], None], tmp: Path, tmp_path: Path, archive: Path
) -> None:
    load(archive, tmp)
    whole = [file.read_bytes() for file in kept(tmp)]
    for number, file in enumerate(kept(tmp)):
        change(file, tmp_path / f"elsewhere-{number}")
    assert load(archive, tmp)["status"] == IN_USE
    for file, content in zip(kept(tmp), whole, strict=True):
        found = file.lstat()
        assert stat.S_ISREG(found.st_mode)
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, os.geteuid())
        assert file.read_bytes() == content


@are_built
@pytest.mark.skipif(not extensions.OPEN_DESCRIPTORS.is_dir(), reason="only Linux shows what is open")
def test_another_folder_in_its_place_makes_no_difference(
    tmp: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the folder and the loading, another user exchanges it: theirs is not loaded from."""
    loaded: list[bytes] = []

    def exchange(folder: int, file: str, content: bytes) -> bool:
        os.rename(home(tmp), tmp / "moved-away")
        home(tmp).mkdir()
        (home(tmp) / file).write_bytes(b"from another user")
        return False

    def look(name: str, path: Path) -> object:
        loaded.append(path.read_bytes())
        return type(sys)(name)

    monkeypatch.setattr(extensions.tempfile, "tempdir", str(tmp))
    monkeypatch.setattr(extensions, "PACKAGE_ROOT", archive)
    monkeypatch.setattr(extensions, "_holds", exchange)
    monkeypatch.setattr(extensions, "_load", look)
    monkeypatch.setitem(sys.modules, "zkconsumer.wire._records", sys.modules.get("zkconsumer.wire._records"))
    extensions._from_zip("zkconsumer.wire._records")
    assert loaded == [file.read_bytes() for file in compiled_files() if file.name.startswith("_records")]


@are_built
def test_where_nothing_can_be_written_they_are_not_in_use(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(extensions.tempfile, "gettempdir", none)
    monkeypatch.setattr(extensions, "PACKAGE_ROOT", archive)
    monkeypatch.setattr(extensions, "_missing", {})
    monkeypatch.delenv(extensions.DISABLE_VARIABLE, raising=False)
    assert extensions.load("zkconsumer.wire._records") is None
    why = "it cannot be loaded: [Errno 2] No usable temporary directory found"
    assert extensions.missing_reason("zkconsumer.wire._records") == why

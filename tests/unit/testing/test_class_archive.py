"""Archives of classes: when one is made, used, made again and given up.  Java is a program that writes its options."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zkconsumer.testing.sandbox import class_archive
from zkconsumer.testing.sandbox.class_archive import ENABLED, JavaProgram, start_options, store_names

JAVA = """#!{python}
import sys
with open({calls!r}, "a") as file:
    print(*sys.argv[1:], file=file)
names = {{word.partition("=")[0]: word.partition("=")[2] for word in sys.argv[1:]}}
text = open(names["-XX:SharedClassListFile"]).read()
if "broken" in text:
    sys.exit("Error: an error in the class list")
open(names["-XX:SharedArchiveFile"], "w").write(text)
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def program(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> JavaProgram:
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(ENABLED, "1")
    java, jars = tmp_path / "java", tmp_path / "jars"
    java.write_text(JAVA.format(python=sys.executable, calls=str(calls)))
    java.chmod(0o755)
    jars.mkdir()
    for name in ("a.jar", "b.jar"):
        (jars / name).write_text(name)
    return JavaProgram(str(java), f"{jars}/*:{jars}/a.jar", "kafka.Kafka")


def run(program: JavaProgram, names: Path, text: str) -> str:
    """A start and an end of the program, which loads these classes; its first option."""
    option = start_options(program, names)[0]
    if option == f"-XX:DumpLoadedClassList={names}":
        names.write_text(text)
    store_names(program, names)
    return option


def test_the_first_run_names_the_classes_and_the_next_start_makes_the_archive_once(
    program: JavaProgram, tmp_path: Path, calls: Path
) -> None:
    names = tmp_path / "names"
    assert run(program, names, "one\ntwo\nthr") == f"-XX:DumpLoadedClassList={names}"
    assert not names.exists()
    assert not calls.exists()
    assert [run(program, names, "") for _ in range(2)] == [f"-XX:SharedArchiveFile={program.archive}"] * 2
    assert program.archive.read_text() == "one\ntwo\n", "a line that a killed JVM has not finished is left out"
    [call] = calls.read_text().splitlines()
    assert call.startswith("-Xshare:dump ")
    assert call.endswith(f" -cp {program.class_path}")


def test_a_process_that_starts_again_makes_no_archive_and_uses_one(
    program: JavaProgram, tmp_path: Path, calls: Path
) -> None:
    names = tmp_path / "names"
    run(program, names, "one\n")
    assert start_options(program, names, may_make=False)[0] == f"-XX:DumpLoadedClassList={names}"
    assert not calls.exists()
    run(program, names, "")
    assert start_options(program, names, may_make=False)[0] == f"-XX:SharedArchiveFile={program.archive}"


def test_another_jar_is_another_archive(program: JavaProgram, tmp_path: Path) -> None:
    before = program.archive
    (tmp_path / "jars" / "b.jar").write_text("another length")
    assert program.archive != before
    assert JavaProgram(program.java, program.class_path, "kafka.Other").archive != program.archive


def test_a_list_that_java_refuses_is_replaced_by_that_of_the_same_run(
    program: JavaProgram, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = tmp_path / "names"
    run(program, names, "broken\n")
    assert run(program, names, "whole\n") == f"-XX:DumpLoadedClassList={names}"
    assert "class-archive-failed program=kafka.Kafka output=Error: an error in the class list" in caplog.text
    assert run(program, names, "") == f"-XX:SharedArchiveFile={program.archive}"


def test_archives_that_were_made_long_ago_are_deleted(
    program: JavaProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "ARCHIVES_MAX", 1)
    made = [JavaProgram(program.java, program.class_path, main) for main in ("a.First", "a.Second")]
    for each in made:
        run(each, tmp_path / "names", "one\n")
        run(each, tmp_path / "names", "")
    assert [each.archive.exists() for each in made] == [False, True]


def test_without_the_setting_nothing_is_written(
    program: JavaProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENABLED)
    assert start_options(program, tmp_path / "names") == ()
    store_names(program, tmp_path / "names")
    assert not (tmp_path / "cache").exists()

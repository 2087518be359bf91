"""What the sandbox says and does around Java, Maven, its cache and its records; nothing real is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.sandbox_fixtures
from zkconsumer.errors import SandboxError
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.testing.sandbox import (
    SandboxRun,
    artifacts,
    cache,
    ensure_delta_jars,
    ensure_spark_jars,
    java,
    missing_delta_requirement,
    missing_requirement,
    missing_spark_requirement,
    reap,
    registry_process,
    sandbox_runs,
    wait_until,
    waiting,
)
from zkconsumer.testing.sandbox.child_process import write_properties
from zkconsumer.testing.sandbox.event_file import EventFile
from zkconsumer.testing.sandbox.registry_process import ensure_registry, missing_for_registry
from zkconsumer.testing.sandbox.spark_jars import COORDINATES, DELTA_COORDINATES
from zkconsumer.testing.sandbox.zookeeper_mode_broker import _listening

RELEASE = "1.1.1"
JARS = artifacts.ARTIFACT_SETS[RELEASE].jars

MAVEN = """
import os, pathlib, sys
if "--version" in sys.argv:
    print("Apache Maven {version}")
    sys.exit()
with open({calls!r}, "a") as calls:
    calls.write(" ".join([*sys.argv[1:], "MAVEN_OPTS=" + os.environ["MAVEN_OPTS"]]) + "\\n")
for line in range(40):
    print("[ERROR] line", line) if {code} else None
target = pathlib.Path(next(word for word in sys.argv if word.startswith("-DoutputDirectory=")).partition("=")[2])
target.mkdir(parents=True)
for number in range({jars}):
    (target / f"jar-{{number}}.jar").write_bytes(b"x" * number)
sys.exit({code})
"""


class Tools:
    """A PATH of our own with programs that only pretend."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        folder.mkdir()

    def java(self, version: str = "17.0.9") -> None:
        words = f'openjdk version "{version}" 2023-10-17'
        for name in ("java", "javac"):
            self._write(name, f"import sys; print({words!r}, file=sys.stderr)")

    def maven(self, *, jars: int = JARS, code: int = 0, version: str = "3.8.7") -> None:
        if not (self.folder / "java").exists():
            self.java()  # which Maven itself needs
        self._write("mvn", MAVEN.format(calls=str(self.calls), jars=jars, code=code, version=version))

    def maven_runs(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    made = Tools(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(made.folder))
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    yield made
    java._java_major.cache_clear()
    java._maven_version.cache_clear()


# --- Java and Maven ---


def test_without_java_the_error_says_what_to_install(tools: Tools) -> None:
    with pytest.raises(SandboxError, match=r"no 'java' in PATH \(JAVA_HOME is not set\): install one .*openjdk-17"):
        java.find_jdk()


def test_a_runtime_without_a_compiler_is_not_enough(tools: Tools) -> None:
    tools.java()
    (tools.folder / "javac").unlink()
    with pytest.raises(SandboxError, match="no 'javac'"):
        java.find_jdk()


def test_a_wrong_java_home_is_named_with_the_java_on_the_path(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.java()
    monkeypatch.setenv("JAVA_HOME", "/no/such/kit")
    with pytest.raises(SandboxError) as raised:
        java.find_jdk()
    assert str(raised.value) == (
        "JAVA_HOME is /no/such/kit, which has no bin/java; unset JAVA_HOME or set it to a Java development kit 17 or "
        f"later; java on the PATH is {tools.folder}/java"
    )
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_jdk().java == f"{tools.folder}/java"


def test_a_java_home_without_a_compiler_is_named(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.java()
    home = tmp_path / "runtime"
    home.mkdir()
    (tools.folder / "javac").unlink()
    (home / "bin").symlink_to(tools.folder)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SandboxError, match=r"runtime, which has no bin/javac; .*; PATH has no javac either"):
        java.find_jdk()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11), ("9", 9)])
def test_an_old_java_is_named_with_its_version(version: str, major: int, tools: Tools) -> None:
    tools.java(version)
    with pytest.raises(SandboxError, match=f"needs Java 17 or later, and .*/java is {major}:"):
        java.find_jdk()


def test_java_home_goes_before_path(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.java("11.0.1")
    home = tmp_path / "home"
    home.mkdir()
    Tools(home / "bin").java("21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_jdk().major == 21


def test_without_maven_the_error_says_what_to_install(tools: Tools) -> None:
    tools.java()
    with pytest.raises(SandboxError, match="no 'mvn' in PATH: install Maven"):
        artifacts.ensure_artifact_set(RELEASE)


def test_an_old_maven_is_named_with_its_version(tools: Tools) -> None:
    tools.java()
    tools.maven(version="3.3.9")
    with pytest.raises(SandboxError, match=r"needs Maven 3\.6\.3 or later, and .*mvn is 3\.3\.9"):
        artifacts.ensure_artifact_set(RELEASE)


def test_when_maven_fails_its_last_lines_are_quoted(tools: Tools) -> None:
    tools.maven(code=1)
    with pytest.raises(SandboxError, match=r"(?s)exit code 1.*line 25\n.*line 39$") as caught:
        artifacts.ensure_artifact_set(RELEASE)
    assert "line 24" not in str(caught.value)
    assert not (cache.root() / "kafka" / RELEASE).exists()


# --- the cache ---


def test_maven_starts_fast_unless_the_user_has_options_for_it(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two options that choose the garbage collector would be an error of the JVM.
    tools.maven()
    monkeypatch.delenv("MAVEN_OPTS", raising=False)
    jars = artifacts.ensure_artifact_set(RELEASE)
    monkeypatch.setenv("MAVEN_OPTS", "-XX:+UseG1GC")
    (jars.parent / artifacts.MARKER).unlink()
    artifacts.ensure_artifact_set(RELEASE)
    options = [line.partition("MAVEN_OPTS=")[2] for line in tools.calls.read_text().splitlines()]
    assert options == [" ".join(java.FAST_START), "-XX:+UseG1GC"]


def test_a_set_is_fetched_once_and_then_used_without_maven(tools: Tools) -> None:
    tools.maven()
    jars = artifacts.ensure_artifact_set(RELEASE)
    assert len(list(jars.iterdir())) == JARS
    (tools.folder / "mvn").unlink()
    assert artifacts.ensure_artifact_set(RELEASE) == jars
    assert tools.maven_runs() == 1


def test_too_few_jars_are_an_error_and_never_a_set(tools: Tools) -> None:
    tools.maven(jars=JARS - 1)
    with pytest.raises(SandboxError, match=f"returned {JARS - 1} jars for Kafka {RELEASE} instead of {JARS}"):
        artifacts.ensure_artifact_set(RELEASE)
    assert not (cache.root() / "kafka" / RELEASE).exists()
    assert [path.name for path in (cache.root() / "kafka").iterdir()] == []


@pytest.mark.parametrize("harm", ["lost jar", "short jar", "no marker", "garbage marker", "other table"])
def test_a_damaged_set_is_fetched_again(harm: str, tools: Tools) -> None:
    tools.maven()
    jars = artifacts.ensure_artifact_set(RELEASE)
    marker = jars.parent / artifacts.MARKER
    if harm == "lost jar":
        (jars / "jar-3.jar").unlink()
    elif harm == "short jar":
        (jars / "jar-3.jar").write_bytes(b"")
    elif harm == "no marker":
        marker.unlink()
    elif harm == "garbage marker":
        marker.write_text("[")
    else:
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "pom": "another"}))
    artifacts.ensure_artifact_set(RELEASE)
    assert tools.maven_runs() == 2
    assert artifacts.is_complete(artifacts.ARTIFACT_SETS[RELEASE], jars.parent)


def test_two_processes_fetch_a_set_once(tools: Tools) -> None:
    tools.maven()
    code = f"from zkconsumer.testing.sandbox import ensure_artifact_set; ensure_artifact_set({RELEASE!r})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert tools.maven_runs() == 1


def test_while_a_process_fetches_one_set_another_fetches_no_other(tools: Tools) -> None:
    """Two Maven processes must not write to one local repository at the same time."""
    tools.maven()
    code = (
        "from zkconsumer.testing.sandbox import ensure_artifact_set; print('starts', flush=True); "
        "ensure_artifact_set('0.8.2.2')"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with cache.lock(cache.folder() / ".maven.lock"):
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"starts\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        assert tools.maven_runs() == 0
    process.communicate(timeout=60)
    assert tools.maven_runs() == 1


def test_an_unknown_release_is_refused_with_those_that_there_are(tools: Tools) -> None:
    with pytest.raises(SandboxError, match=r"Kafka 0\.7\.2 is not in the sandbox; there are 0\.8\.1\.1, 0\.8\.2\.2, "):
        artifacts.ensure_artifact_set("0.7.2")
    with pytest.raises(SandboxError, match=r"ZooKeeper 3\.5 is not in the sandbox; there are 3\.4\.6, 3\.8"):
        artifacts.zookeeper_release("3.5")


@pytest.mark.parametrize("wanted", artifacts.ARTIFACT_SETS.values(), ids=artifacts.ARTIFACT_SETS)
def test_every_pom_excludes_what_cannot_be_had(wanted: artifacts.ArtifactSet) -> None:
    pom = wanted.pom()
    dependencies = pom.count("<dependency>")
    assert dependencies == 1 + len(wanted.extra)
    assert all(pom.count(f"<groupId>{group}</groupId>") == dependencies for group, _ in artifacts.EXCLUDED)


def test_the_jars_of_spark_are_fetched_one_by_one_and_once(tools: Tools) -> None:
    tools.java()
    tools.maven(jars=len(COORDINATES))
    jars = ensure_spark_jars()
    (tools.folder / "mvn").unlink()
    assert ensure_spark_jars() == jars
    assert len(jars) == len(COORDINATES)
    assert missing_spark_requirement() is None
    assert ":copy " in tools.calls.read_text(), "copy-dependencies would resolve the poms of Spark"


def test_the_jars_of_delta_have_a_folder_of_their_own(tools: Tools) -> None:
    tools.java()
    assert "no 'mvn' in PATH" in (missing_delta_requirement() or "")
    tools.maven(jars=len(DELTA_COORDINATES))
    jars = ensure_delta_jars()
    (tools.folder / "mvn").unlink()
    assert ensure_delta_jars() == jars
    assert missing_delta_requirement() is None
    assert missing_spark_requirement() is not None


def test_without_maven_the_jars_of_spark_are_missing_and_it_is_said(tools: Tools) -> None:
    tools.java()
    assert "no 'mvn' in PATH" in (missing_spark_requirement() or "")


def test_the_registry_is_unpacked_once_and_its_lack_is_one_sentence(tools: Tools) -> None:
    tools.java()
    assert "no 'mvn' in PATH" in (missing_for_registry() or "")
    tools.maven(jars=registry_process.JARS)
    folder = ensure_registry()
    (tools.folder / "mvn").unlink()
    assert ensure_registry() == folder
    assert missing_for_registry() is None
    assert ":unpack " in tools.calls.read_text()


def test_the_jars_in_the_folders_of_an_archive_count(tools: Tools) -> None:
    tools.maven(jars=registry_process.JARS)
    jars = ensure_registry()
    (jars / "lib").mkdir()
    (jars / "jar-3.jar").rename(jars / "lib" / "jar-3.jar")
    assert not artifacts.is_complete(registry_process.ARCHIVE, jars.parent), "the marker has another place"
    marker = jars.parent / artifacts.MARKER
    content = json.loads(marker.read_text())
    content["jars"]["lib/jar-3.jar"] = content["jars"].pop("jar-3.jar")
    marker.write_text(json.dumps(content))
    assert artifacts.is_complete(registry_process.ARCHIVE, jars.parent)


def test_maven_that_does_not_bring_the_jars_of_spark_is_quoted(tools: Tools) -> None:
    tools.maven(code=1)
    with pytest.raises(SandboxError, match="could not fetch Spark's Kafka source"):
        ensure_spark_jars()


# --- skipping ---


def test_maven_is_not_missed_when_the_set_is_there(tools: Tools) -> None:
    tools.java()
    assert "mvn" in (missing_requirement(RELEASE) or "")
    tools.maven()
    artifacts.ensure_artifact_set(RELEASE)
    (tools.folder / "mvn").unlink()
    assert missing_requirement(RELEASE) is None
    assert "mvn" in (missing_requirement(RELEASE, "0.8.2.2") or "")


def test_nothing_real_is_skipped_in_ci(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"in CI nothing real is skipped: .*no 'java'"):
        tests.sandbox_fixtures.require_releases(RELEASE)
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no 'java'"):
        tests.sandbox_fixtures.require_releases(RELEASE)


# --- runs ---


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that does nothing; the word "sandbox-marker" stands in its command line."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "sandbox-marker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def abandoned(
    sleeper: subprocess.Popen[bytes],
    *,
    started: str | None = None,
    marker: str = "sandbox-marker",
    machine: str | None = None,
) -> SandboxRun:
    """A run with one record, whose owner cannot be alive."""
    run = SandboxRun.create()
    run.marker = marker
    record = run.record(sleeper.pid, "broker", "broker-0")
    assert record is not None
    if started is not None:
        path = run.folder / "processes" / str(sleeper.pid)
        path.write_text(json.dumps({**json.loads(path.read_text()), "started": started}))
    owner = {"machine": machine or sandbox_runs.machine(), "pid": os.getpid(), "started": "long ago"}
    (run.folder / sandbox_runs.OWNER_FILE).write_text(json.dumps({"owner": owner}))
    return run


def test_what_a_dead_run_left_behind_is_ended(tools: Tools, sleeper: subprocess.Popen[bytes]) -> None:
    run = abandoned(sleeper)
    assert [record.pid for record in reap()] == [sleeper.pid]
    assert sleeper.wait(10) == -9
    assert not run.folder.exists()


def test_a_process_that_got_a_dead_ones_id_is_left_alone(tools: Tools, sleeper: subprocess.Popen[bytes]) -> None:
    by_time = abandoned(sleeper, started="1")
    by_words = abandoned(sleeper, marker="-Dzkconsumer.run=another")
    assert reap() == []
    assert sleeper.poll() is None
    assert not by_time.folder.exists()
    assert not by_words.folder.exists()


def test_a_run_of_another_machine_that_shares_the_cache_is_left_alone(
    tools: Tools, sleeper: subprocess.Popen[bytes]
) -> None:
    run = abandoned(sleeper, machine="elsewhere pid:[1]")
    assert reap() == []
    assert sleeper.poll() is None
    assert run.folder.exists()


def test_a_living_run_and_a_detached_one_are_left_alone(tools: Tools, sleeper: subprocess.Popen[bytes]) -> None:
    living, detached = SandboxRun.create(), SandboxRun.create()
    for run in (living, detached):
        run.marker = "sandbox-marker"
        run.record(sleeper.pid, "broker", "broker-0")
    detached.detach()
    assert reap() == []
    assert sleeper.poll() is None
    assert living.folder.exists()
    assert detached.folder.exists()


def test_brokers_are_stopped_before_zookeeper_and_after_members(tools: Tools, sleeper: subprocess.Popen[bytes]) -> None:
    run = SandboxRun.create()
    for number, kind in enumerate(("zookeeper", "broker", "member", "broker")):
        fields = {"pid": number, "started": "1", "kind": kind, "name": kind, "marker": "x"}
        (run.folder / "processes" / str(number)).write_text(json.dumps(fields))
    assert [record.kind for record in run.records()] == ["member", "broker", "broker", "zookeeper"]


# --- small parts ---


def test_waiting_ends_with_the_name_of_what_did_not_happen() -> None:
    with pytest.raises(SandboxError, match="waited 30 ms in vain: the moon is blue"):
        wait_until(lambda: False, "the moon is blue", timeout_ms=30, poll_ms=10)


def test_a_long_wait_asks_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = ManualClock(), []

    def pause(duration_ms: int) -> None:
        pauses.append(duration_ms)
        clock.move(duration_ms)

    monkeypatch.setattr(waiting, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr(waiting, "pause_ms", pause)
    with pytest.raises(SandboxError):
        wait_until(lambda: False, "the moon is blue", timeout_ms=30_000)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (20, 200)
    assert len(pauses) < 250, "it was not asked every 20 ms"
    with pytest.raises(SandboxError):
        wait_until(lambda: False, "the moon is blue", timeout_ms=30_000, poll_ms=10)
    assert pauses[-1] == 10, "an interval that is given is used"


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    events = EventFile(path)
    path.write_bytes(b'{"event":"one"}\n{"eve')
    assert [event["event"] for event in events.read_new()] == ["one"]
    with path.open("ab") as file:
        file.write(b'nt":"two"}\n')
    assert [event["event"] for event in events.read_new()] == ["two"]
    assert events.read_new() == []


def test_a_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    events = EventFile(path)
    path.write_bytes(b"Exception in thread main\n")
    with pytest.raises(SandboxError, match="not JSON: b'Exception in thread main'"):
        events.read_new()


def test_properties_keep_backslashes_and_other_scripts(tmp_path: Path) -> None:
    path = write_properties({"whitelist": "a\\.b", "word": "ä😀"}, tmp_path / "some" / "file.properties")
    assert path.read_text() == "whitelist=a\\\\.b\nword=\\u00e4\\ud83d\\ude00\n"


def test_brokers_of_0_8_are_told_where_to_listen_in_their_own_words() -> None:
    assert set(_listening((0, 8, 2, 2), 9092)) == {"host.name", "advertised.host.name", "port", "advertised.port"}
    assert set(_listening((0, 9, 0, 1), 9092)) == {"listeners", "advertised.listeners"}

"""The jars of a broker, a Scala consumer or a ZooKeeper of each release, and their download with Maven.

The table is data; each workaround in it has its reason beside it.  A set is downloaded once, then used without Maven
and without a network.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from zkconsumer.base.progress import progress_task
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache
from zkconsumer.testing.sandbox.java import FAST_START, find_jdk, find_maven

MAVEN_TIMEOUT_S = 480
MAVEN_LINES_QUOTED = 15
MAVEN_PROGRESS = ("[INFO] Download", "Download", "Progress")
MAVEN_DOWNLOADED = b"Downloaded from "
"""The beginnings of its lines about downloads, and what it writes for each file that has come."""

DEPENDENCY_PLUGIN = "3.8.1"  # pinned, or Maven would ask the network which one is the latest
MARKER = "complete.json"

# Nowhere to be had: the parents of old log4j releases name them, nothing here uses them.
EXCLUDED = (("com.sun.jmx", "*"), ("com.sun.jdmk", "*"), ("javax.jms", "*"))

# The broker of 0.10.1 to 0.11 makes its cluster id with a class that left Java with release 11.
JAXB = "javax.xml.bind:jaxb-api:2.3.1"
# Without a binding for slf4j these sets log nothing.
LOG4J = ("org.slf4j:slf4j-log4j12:1.7.25", "log4j:log4j:1.2.17")
RELOAD4J = ("org.slf4j:slf4j-reload4j:1.7.36",)
LOG4J2 = ("org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",)
# The ZooKeeper client 3.4.13 of 2.0.1 cannot connect on Java 14 and later (ZOOKEEPER-3779).
ZOOKEEPER_3_4_10 = "org.apache.zookeeper:zookeeper:3.4.10"

TOOLS_SUFFIX = "-tools"
"""The suffix, after the release, in the name of a set that contains only its tools."""


class MavenJarSet(Protocol):
    """A set of jars as Maven is asked for it: a pom, a goal of the dependency plugin, and how many files come."""

    @property
    def title(self) -> str: ...
    @property
    def goal(self) -> str: ...
    @property
    def jars(self) -> int: ...
    def pom(self) -> str: ...
    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """One release: its broker artifact, the added artifacts, and the roles for which it can be used."""

    release: str
    scala: str
    jars: int  # how many files Maven must bring
    extra: tuple[str, ...] = ()
    has_scala_consumer: bool = False
    has_zookeeper_mode: bool = True
    has_log4j2: bool = False
    has_tools_only: bool = False

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(number) for number in self.release.removesuffix(TOOLS_SUFFIX).split("."))

    @property
    def title(self) -> str:
        return f"Kafka {self.release}"

    @property
    def goal(self) -> str:
        return "copy-dependencies"

    @property
    def coordinate(self) -> str:
        """The Maven coordinates."""
        if self.has_tools_only:
            return f"org.apache.kafka:kafka-tools:{self.release.removesuffix(TOOLS_SUFFIX)}"
        return f"org.apache.kafka:kafka_{self.scala}:{self.release}"

    def pom(self) -> str:
        """The complete pom for Maven."""
        excluded = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
            for group, artifact in EXCLUDED
        )
        wanted = "".join(
            "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
            "<exclusions>{}</exclusions></dependency>\n".format(*coordinate.split(":"), excluded)
            for coordinate in (self.coordinate, *self.extra)
        )
        return (
            "<project>\n"
            "  <modelVersion>4.0.0</modelVersion>\n"
            f"  <groupId>zkconsumer</groupId><artifactId>sandbox</artifactId><version>{self.release}</version>\n"
            f"  <dependencies>\n{wanted}  </dependencies>\n"
            "</project>\n"
        )

    def digest(self) -> str:
        return hashlib.sha256(self.pom().encode()).hexdigest()


ARTIFACT_SETS = {
    each.release: each
    for each in (
        # A broker without coordinators; its producer is older than the one that the sandbox drives.
        ArtifactSet("0.8.1.1", "2.10", jars=13, has_scala_consumer=True),
        ArtifactSet("0.8.2.2", "2.11", jars=17, has_scala_consumer=True),
        ArtifactSet("0.9.0.1", "2.11", jars=19, has_scala_consumer=True),
        ArtifactSet("0.10.2.2", "2.11", jars=15, extra=(JAXB,), has_scala_consumer=True),
        ArtifactSet("0.11.0.3", "2.11", jars=15, extra=(JAXB,), has_scala_consumer=True),
        ArtifactSet("1.1.1", "2.11", jars=17, extra=LOG4J, has_scala_consumer=True),
        ArtifactSet("2.0.1", "2.11", jars=19, extra=(*LOG4J, ZOOKEEPER_3_4_10)),
        ArtifactSet("2.8.2", "2.13", jars=38, extra=LOG4J),
        ArtifactSet("3.9.1", "2.13", jars=57, extra=RELOAD4J),
        ArtifactSet("4.1.1", "2.13", jars=46, extra=LOG4J2, has_zookeeper_mode=False, has_log4j2=True),
    )
}

TOOL_SETS = {
    each.release: each
    for each in (
        ArtifactSet(f"3.9.1{TOOLS_SUFFIX}", "", jars=77, has_tools_only=True),
        ArtifactSet(f"4.1.1{TOOLS_SUFFIX}", "", jars=81, has_log4j2=True, has_tools_only=True),
    )
}
"""Command-line tools that left the broker's artifact, for ``run_tool`` alone (with 3.5, KAFKA-14525)."""

# ZooKeeper servers come out of Kafka's sets.
ZOOKEEPER_RELEASES = {"3.4.6": "0.8.2.2", "3.8": "3.9.1"}


def artifact_set(release: str) -> ArtifactSet:
    """The row of a Kafka release; SandboxError names those that there are."""
    try:
        return {**ARTIFACT_SETS, **TOOL_SETS}[release]
    except KeyError:
        raise SandboxError(f"Kafka {release} is not in the sandbox; there are {', '.join(ARTIFACT_SETS)}") from None


def zookeeper_release(version: str) -> str:
    """The Kafka release whose set holds this ZooKeeper server."""
    try:
        return ZOOKEEPER_RELEASES[version]
    except KeyError:
        raise SandboxError(
            f"ZooKeeper {version} is not in the sandbox; there are {', '.join(ZOOKEEPER_RELEASES)}"
        ) from None


def ensure_artifact_set(release: str) -> Path:
    """The folder with the jars of a release, fetched if it is not in the cache or not whole.

    Raises SandboxError if Maven is missing, too old, fails, or brings another number of files than it should.
    """
    return ensure_jars(artifact_set(release), cache.folder("kafka") / release)


def ensure_jars(wanted: MavenJarSet, target: Path) -> Path:
    """The folder with the jars below ``target``; raises what ``ensure_artifact_set`` raises."""
    if is_complete(wanted, target):
        return target / "jars"
    # One lock for all sets: two Maven processes must not write to one local repository at the same time.
    with cache.lock(cache.folder() / ".maven.lock"):
        if not is_complete(wanted, target):  # another process may have fetched it while we waited
            _fetch(wanted, target)
    return target / "jars"


def is_complete(wanted: MavenJarSet, target: Path) -> bool:
    """Whether the folder holds every jar that its marker names, in full, for today's table."""
    try:
        marker = json.loads((target / MARKER).read_text())
        sizes = _jar_sizes(target)
    except (OSError, ValueError):
        return False
    return bool(marker == {"pom": wanted.digest(), "jars": sizes} and len(sizes) == wanted.jars)


def are_in_cache(releases: Iterable[str]) -> bool:
    """Whether these releases need no download; downloads nothing.  Raises what ``artifact_set`` raises."""
    return all(is_complete(artifact_set(release), cache.root() / "kafka" / release) for release in releases)


def missing_requirement(*releases: str) -> str | None:
    """Why these releases cannot be started here, as a sentence, or None; downloads nothing.

    Java is always needed, Maven only for what is not in the cache yet.
    """
    try:
        find_jdk()
        if not are_in_cache(releases):
            find_maven()
    except SandboxError as error:
        return str(error)
    return None


def _jar_sizes(folder: Path) -> dict[str, int]:
    """Jar -> bytes.  An archive that Maven has unpacked has folders."""
    jars = folder / "jars"
    return {jar.relative_to(jars).as_posix(): jar.stat().st_size for jar in jars.rglob("*.jar")}


def _fetch(wanted: MavenJarSet, target: Path) -> None:
    find_jdk()  # Maven runs on it, and Maven's error about a wrong JAVA_HOME does not name the Java on the PATH
    mvn = find_maven()
    with cache.atomic_folder(target) as building:
        pom = building / "pom.xml"
        pom.write_text(wanted.pom())
        goal = f"org.apache.maven.plugins:maven-dependency-plugin:{DEPENDENCY_PLUGIN}:{wanted.goal}"
        _run_maven([mvn, "-B", "-f", str(pom), goal, f"-DoutputDirectory={building / 'jars'}"], wanted.title)
        sizes = _jar_sizes(building)
        if len(sizes) != wanted.jars:
            raise SandboxError(
                f"Maven returned {len(sizes)} jars for {wanted.title} instead of {wanted.jars}:"
                f" {', '.join(sorted(sizes))}; check the mirrors in settings.xml"
            )
        (building / MARKER).write_text(json.dumps({"pom": wanted.digest(), "jars": sizes}, indent=1))


def _run_maven(command: list[str], title: str) -> None:
    """Run Maven; its output shows how many files it has downloaded."""
    with tempfile.TemporaryFile() as output, progress_task(f"downloading {title}", unit="files") as task:
        environment = {"MAVEN_OPTS": " ".join(FAST_START), **os.environ}  # those of the user instead, if they are set
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            exit_code = None
            for _ in range(MAVEN_TIMEOUT_S):
                with suppress(subprocess.TimeoutExpired):
                    exit_code = process.wait(1)
                    break
                task.advance(_output(output).count(MAVEN_DOWNLOADED) - task.done)
        finally:
            process.kill()  # if it still runs: after the time limit, or Ctrl-C
            process.wait()
        lines = _output(output).decode(errors="replace").splitlines()
    if exit_code is None:
        raise SandboxError(f"Maven did not fetch {title} within {MAVEN_TIMEOUT_S} s; is the network up?")
    if exit_code != 0:
        own = [line for line in lines if not line.startswith(MAVEN_PROGRESS)]
        last = "\n".join(own[-MAVEN_LINES_QUOTED:])
        raise SandboxError(
            f"Maven could not fetch {title} (exit code {exit_code}); it needs Maven Central, or a mirror"
            f" in ~/.m2/settings.xml. Its last lines:\n{last}"
        )


def _output(file: IO[bytes]) -> bytes:
    """What the process has written so far; its own position in the file stays."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)

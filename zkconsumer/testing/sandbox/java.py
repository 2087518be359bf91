"""Java and Maven: find them, reject too old ones, compile programs (those of ``zkconsumer/testing/java``)."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache

JAVA_MAJOR_MIN = 17
MAVEN_MIN = (3, 6, 3)
VERSION_TIMEOUT_S = 30
COMPILE_TIMEOUT_S = 120
FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
"""Options of a JVM for half the start-up time; nothing here runs long enough to miss the better compiler."""
TOOL_FAST_START = tuple(f"-J{option}" for option in FAST_START)
"""The same for the tools of a JDK, which pass them on to their JVM."""
SOURCES = Path(__file__).parent.parent / "java"
PROGRAMS_JAR = "programs.jar"


@dataclass(frozen=True, slots=True)
class Jdk:
    """A Java development kit that is new enough."""

    java: str
    javac: str
    major: int


def find_jdk() -> Jdk:
    """The JDK of ``JAVA_HOME``, else of ``PATH``; SandboxError names what to install."""
    java, javac = _find("java"), _find("javac")
    if java is None or javac is None:
        raise SandboxError(_missing("java" if java is None else "javac"))
    major = _java_major(java)
    if major < JAVA_MAJOR_MIN:
        raise SandboxError(
            f"the sandbox needs Java {JAVA_MAJOR_MIN} or later, and {java} is {major}:"
            " install a later one, or point JAVA_HOME to it"
        )
    return Jdk(java, javac, major)


def find_maven() -> str:
    """The ``mvn`` of ``PATH``; SandboxError names what to install."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise SandboxError(
            "the sandbox fetches Kafka and ZooKeeper with Maven, and there is no 'mvn' in PATH:"
            f" install Maven {_dotted(MAVEN_MIN)} or later (Debian: apt install maven; macOS: brew install maven)"
        )
    version = _maven_version(mvn)
    if version < MAVEN_MIN:
        raise SandboxError(
            f"the sandbox needs Maven {_dotted(MAVEN_MIN)} or later, and {mvn} is {_dotted(version)}:"
            " install a later one and put it first in PATH"
        )
    return mvn


def compiled(programs: tuple[str, ...], jars: Path | None, sources_in: Path = SOURCES) -> Path:
    """A jar with the classes of ``programs`` (names without ``.java``), compiled against ``jars``.

    ``sources_in`` is the folder of their sources.

    Cached under a hash of the sources, of the jars' folder name and of Java's version.
    """
    jdk = find_jdk()
    sources = [sources_in / f"{program}.java" for program in programs]
    digest = hashlib.sha256(f"{PROGRAMS_JAR} {jdk.major} {jars and jars.parent.name}".encode())
    for source in sources:
        digest.update(source.read_bytes())
    release = jars.parent.name if jars is not None else "plain"
    target = cache.folder("classes") / f"{programs[0]}-{release}-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target / PROGRAMS_JAR
    with cache.atomic_folder(target) as building:
        command = [jdk.javac, *TOOL_FAST_START, "-nowarn", "-d", str(building)]
        command += ["-cp", f"{jars}/*"] if jars is not None else []
        command += [str(source) for source in sources]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise SandboxError(f"javac could not compile {', '.join(programs)} for {release}:\n{done.stderr[-2000:]}")
        _pack(building)
    return target / PROGRAMS_JAR


def _pack(folder: Path) -> None:
    """Put the class files of the folder into its jar: a JVM makes no archive of classes in folders."""
    with zipfile.ZipFile(folder / PROGRAMS_JAR, "w") as jar:
        for file in sorted(folder.rglob("*.class")):
            jar.write(file, file.relative_to(folder))
            file.unlink()


def _find(program: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(program, path=os.path.join(home, "bin")) if home else shutil.which(program)


def _missing(program: str) -> str:
    """Why there is no ``program``: JAVA_HOME is wrong, or no kit is installed."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return (
            f"the sandbox needs a Java development kit {JAVA_MAJOR_MIN} or later, and there is no '{program}' in PATH"
            f" (JAVA_HOME is not set): install one (Debian: apt install openjdk-{JAVA_MAJOR_MIN}-jdk-headless;"
            f" macOS: brew install openjdk@{JAVA_MAJOR_MIN})"
        )
    in_path = shutil.which(program)
    path = f"{program} on the PATH is {in_path}" if in_path else f"PATH has no {program} either"
    return (
        f"JAVA_HOME is {home}, which has no bin/{program}; unset JAVA_HOME or set it to a Java development kit"
        f" {JAVA_MAJOR_MIN} or later; {path}"
    )


@functools.cache
def _java_major(java: str) -> int:
    words = _output_of([java, "-version"])
    found = re.search(r'version "(\d+)(?:\.(\d+))?', words)
    if found is None:
        raise SandboxError(f"'{java} -version' printed no version, but: {words[-500:]}")
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first  # Java 8 calls itself 1.8.


@functools.cache
def _maven_version(mvn: str) -> tuple[int, ...]:
    words = _output_of([mvn, "--version"])
    found = re.search(r"Apache Maven (\d+)\.(\d+)\.(\d+)", words)
    if found is None:
        raise SandboxError(f"'{mvn} --version' printed no version, but: {words[-500:]}")
    return tuple(int(number) for number in found.groups())


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"'{' '.join(command)}' cannot be run: {error}") from error
    return done.stdout + done.stderr


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)

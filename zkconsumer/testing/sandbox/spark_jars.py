"""Packages of Spark for tests, fetched as the sandbox fetches Kafka: once, then offline.

    jars = ensure_spark_jars()          Spark's own Kafka source for the installed pyspark
    jars = ensure_delta_jars()          Delta for pyspark 4.2
    SparkSession.builder.config("spark.jars", ",".join(map(str, jars)))

Pinned jars, each downloaded separately.  Not every repository has the connector of one release completely, as
``spark.jars.packages`` requires, and the parent poms of Spark's artifacts name repositories that are not reachable; so
only our pom is resolved.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache
from zkconsumer.testing.sandbox.artifacts import ensure_jars, is_complete
from zkconsumer.testing.sandbox.java import find_jdk, find_maven

COORDINATES = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""They run with pyspark 4.3.0 (brokers 0.11 to 4.1)."""

DELTA_COORDINATES = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
)
"""They run with pyspark 4.2.0; what else they need is in Spark."""


@dataclass(frozen=True, slots=True)
class SparkJars:
    """The set, as ``artifacts`` fetches one."""

    title: str = "Spark's Kafka source"
    folder: str = "kafka-source"
    coordinates: tuple[str, ...] = COORDINATES

    @property
    def goal(self) -> str:
        return "copy"

    @property
    def jars(self) -> int:
        return len(self.coordinates)

    def pom(self) -> str:
        """The complete pom for Maven: files, and none of their dependencies."""
        items = "".join(
            "<artifactItem><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></artifactItem>\n".format(
                *coordinate.split(":")
            )
            for coordinate in self.coordinates
        )
        return (
            "<project>\n"
            "  <modelVersion>4.0.0</modelVersion>\n"
            "  <groupId>zkconsumer</groupId><artifactId>spark</artifactId><version>1</version>\n"
            "  <build><plugins><plugin>\n"
            "    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>\n"
            f"    <configuration><artifactItems>\n{items}</artifactItems></configuration>\n"
            "  </plugin></plugins></build>\n"
            "</project>\n"
        )

    def digest(self) -> str:
        return hashlib.sha256(self.pom().encode()).hexdigest()


DELTA_JARS = SparkJars("Delta for Spark 4.2", "delta", DELTA_COORDINATES)


def ensure_spark_jars() -> list[Path]:
    """The jars, sorted by name; fetched if they are not in the cache or not whole.

    Raises SandboxError if Maven is missing, too old or fails.
    """
    return _ensure(SparkJars())


def missing_spark_requirement() -> str | None:
    """Why they cannot be had here, as a sentence, or None; downloads nothing."""
    return _missing(SparkJars())


def ensure_delta_jars() -> list[Path]:
    """As ``ensure_spark_jars``, for ``DELTA_COORDINATES``."""
    return _ensure(DELTA_JARS)


def missing_delta_requirement() -> str | None:
    """As ``missing_spark_requirement``, for ``DELTA_COORDINATES``."""
    return _missing(DELTA_JARS)


def _ensure(wanted: SparkJars) -> list[Path]:
    return sorted(ensure_jars(wanted, cache.folder("spark") / wanted.folder).glob("*.jar"))


def _missing(wanted: SparkJars) -> str | None:
    try:
        find_jdk()
        if not is_complete(wanted, cache.root() / "spark" / wanted.folder):
            find_maven()
    except SandboxError as error:
        return str(error)
    return None

"""Packaging of zkconsumer.  Tools are configured in pyproject.toml."""

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent

VERSION = re.findall(r'(?m)^__version__ = "(.+)"$', (HERE / "zkconsumer" / "version.py").read_text("utf-8"))[0]

REPOSITORY_URL = os.environ.get("ZKCONSUMER_REPOSITORY_URL", "").rstrip("/")
"""The address of the repository that the packages come from.  The release workflow sets it; no address is in the tree,
so that the packages of a fork lead to the fork.
"""

AVRO = ["fastavro>=1.9"]

DOCS = ["furo>=2024.8", "myst-parser>=4", "sphinx>=8.1"]

FAST = ["isal>=1.6", "zstandard>=0.22"]

METRICS = ["prometheus-client>=0.14"]

POSTGRES = ["psycopg[binary]>=3.2"]
SPARK = ["pyarrow>=18", "pyspark>=4.2"]
WEB = ["starlette>=0.40", "uvicorn>=0.30"]

BENCH = [*FAST, *SPARK, "confluent-kafka>=2.5", "crc32c>=2.7", "kafka-python>=3.0", "psutil>=5.9"]
TEST = [
    "confluent-kafka>=2.5",
    "grafana-foundation-sdk",  # its versions are those of Grafana, with an epoch
    "hypothesis>=6.100",
    "import-linter>=2.1",
    "kafka-python>=3.0",
    "mypy>=1.11",
    "playwright>=1.49",
    "psutil>=5.9",
    "pyspark[pipelines]>=4.2",
    "pytest>=8.2",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.6",
    "types-six",
]

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Such a build of Python has no limited API; its modules ask for the global interpreter lock."""


def project_urls() -> dict[str, str]:
    """The links of the metadata, to the files of this version's tag; none without ``REPOSITORY_URL``."""
    if not REPOSITORY_URL:
        return {}
    files = f"{REPOSITORY_URL}/blob/v{VERSION}"
    return {
        "Source": REPOSITORY_URL,
        "Documentation": f"{files}/migration_docs/README.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{REPOSITORY_URL}/issues",
    }


def long_description() -> str:
    """README.md.  With ``REPOSITORY_URL`` its relative links, which lead nowhere on another site, become absolute."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    if not REPOSITORY_URL:
        return text

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}[{found[2]}]({REPOSITORY_URL}/{kind}/v{VERSION}/{found[3]})"

    text = re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)", absolute, text)
    return text.replace('<img src="', f'<img src="{REPOSITORY_URL}/raw/v{VERSION}/')


def compiled(name: str, *depends: str) -> Extension:
    """One compiled module, beside the Python module that does the same where there is no compiler."""
    source = name.replace(".", "/") + ".c"
    return Extension(
        name,
        [source],
        include_dirs=["zkconsumer/include"],
        depends=["zkconsumer/include/zkconsumer_limited.h", "zkconsumer/include/zkconsumer_rows.h", *depends],
        define_macros=[("ZKCONSUMER_FULL_API", "1")] if FREE_THREADED else [],
        extra_compile_args=["-std=c11", "-O2", "-fno-plt"],  # a message calls twenty functions of Python: -3 % CPU
        py_limited_api=not FREE_THREADED,  # one file for all releases of Python
        optional=True,
    )


COMPILED = [
    compiled("zkconsumer.base._arrow"),
    compiled("zkconsumer.base._consumer_records"),
    compiled("zkconsumer.base._delivery"),
    compiled("zkconsumer.base._sockets"),
    compiled(
        "zkconsumer.wire._records",
        "zkconsumer/wire/fetch_core.h",
        "zkconsumer/wire/records_core.h",
        "zkconsumer/wire/crc.h",
    ),
]

setup(
    name="zkconsumer",
    version=VERSION,
    description="Kafka's ZooKeeper-based high-level consumer, in the same group as the original Scala members",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0 AND MIT",  # MIT: uPlot, of the page
    license_files=["LICENSE", "bridge/web/static/vendor/uplot/LICENSE"],
    project_urls=project_urls(),
    python_requires=">=3.11",
    packages=find_packages(include=["zkconsumer", "zkconsumer.*", "bridge", "bridge.*", "pyspark_zkconsumer"]),
    ext_modules=COMPILED,
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
    package_data={
        "zkconsumer": ["py.typed", "testing/java/*.java", "base/*.pyi"],
        "bridge": [
            "py.typed",
            "spark/pipeline/log4j2.properties",
            "web/static/*",
            "web/static/vendor/uplot/*",
        ],
        "pyspark_zkconsumer": ["py.typed"],
    },
    install_requires=[
        "click>=8.1",
        "cramjam>=2.8",
        "google-crc32c>=1.5",
        "google-re2>=1.1",
        # zkconsumer/zk/kazoo_connection.py relies on private parts, which its head lists: raise both bounds together,
        # after `tox -e newest`.
        "kazoo>=2.11,<2.12",
        "scramp>=1.4.5",
        "six>=1.16",
    ],
    extras_require={
        "avro": AVRO,
        "bench": BENCH,
        "dev": [*AVRO, *DOCS, *FAST, *METRICS, *POSTGRES, *SPARK, *WEB, *TEST, *BENCH, "pre-commit>=4"],
        "docs": DOCS,
        "fast": FAST,
        "gssapi": ["gssapi>=1.8"],
        "metrics": METRICS,
        "postgres": POSTGRES,
        "spark": SPARK,
        "test": [*AVRO, *DOCS, *FAST, *METRICS, *POSTGRES, *SPARK, *WEB, *TEST],
        "web": WEB,
        "zookeeper-kerberos": ["gssapi>=1.8"],
    },
    entry_points={
        "console_scripts": ["zkconsumer=zkconsumer.cli:main"],
        "zkconsumer.commands": [
            "broker=bridge.commands.broker_command:broker",
            "demo=bridge.commands.demo:demo",
            "groups.top=bridge.commands.groups_top:top",
            "migrate=bridge.commands.migrate:migrate",
            "pipeline=bridge.commands.pipeline:pipeline",
            "spark=bridge.commands.spark:spark",
            "web=bridge.commands.web:web",
        ],
        "zkconsumer.health": [
            "pipeline=bridge.spark.pipeline.status.pipeline_health:read_pipeline_health",
        ],
        "zkconsumer.connectors": [
            "coordinator=bridge.connector_kinds:COORDINATOR",
            "migrating=bridge.connector_kinds:MIGRATING",
        ],
    },
    classifiers=[
        "Operating System :: MacOS",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
)

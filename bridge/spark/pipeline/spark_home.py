"""A ``SPARK_HOME`` in which Spark's Python processes import the installed pyspark instead of the copy in its zip.

The pyspark of pip has each of its modules twice: as a file with its compiled form, and in ``python/lib/pyspark.zip``.
Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts
(``PythonUtils.sparkPythonPath`` of Spark 4.3), and Python keeps no compiled form of what it imports from a zip: each
process compiles pyspark again, which takes about 0.6 s of CPU.  A query with a Python source starts several.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

log = logging.getLogger("zkconsumer.spark")

LINKED = ("bin", "conf", "jars", "sbin")
"""What the start of Spark's JVM reads, also what an operator adds there later.  ``python`` is left out for its zip."""


WORKER_PYTHON = ("spark.pyspark.python", "spark.pyspark.driver.python")


def installed_spark_home(
    environment: Mapping[str, str], settings: Mapping[str, str], cache: Path | None = None
) -> Path | None:
    """The folder, made if there is none; None: Spark must start as it does without us.

    That is so if the operator chose a ``SPARK_HOME`` or another Python for the workers (it may have no pyspark), if
    pyspark has no jars (the client of Spark Connect), or if the cache folder cannot be written.

    ``environment``: that of this process.  ``settings``: of the session.  ``cache``: the folder of caches; None:
    ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    pyspark = find_spec("pyspark")
    workers = {
        environment.get("PYSPARK_PYTHON", sys.executable),
        *(settings.get(key, sys.executable) for key in WORKER_PYTHON),
    }
    if pyspark is None or pyspark.origin is None or "SPARK_HOME" in environment or workers != {sys.executable}:
        return None
    installed = Path(pyspark.origin).parent
    if not (installed / "jars").is_dir():
        return None
    cache = cache or Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    home = cache / "zkconsumer" / "spark-home" / name
    try:
        _link(installed, home)
    except OSError as error:
        log.debug("spark-home-unavailable folder=%s error=%r", home, error)
        return None
    return home


def _link(installed: Path, home: Path) -> None:
    """Makes the folder with its links in one step."""
    if home.is_dir():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    for name in LINKED:
        (new / name).symlink_to(installed / name)
    try:
        os.rename(new, home)
    except OSError:
        for link in new.iterdir():
            link.unlink()
        new.rmdir()
        if not home.is_dir():
            raise

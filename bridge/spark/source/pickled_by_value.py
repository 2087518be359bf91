"""Functions that are sent to Spark's workers with their code, because they report what a worker lacks.

Spark's cloudpickle sends the code of these functions, not their names (``register_pickle_by_value``).  So they may use
only Python's standard library, imported inside the function, and no other name of this file.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle


def load_in_worker(module: str, name: str, version: str, archive: str = "") -> Any:
    """The class ``name`` of ``module`` in this process, which must have ``version`` of the package.

    ``archive``: the zip from which the sender loaded it.  Spark plans a stream on the sender's machine, but looks for
    the files of ``addPyFile`` and ``addArtifacts`` in a folder that does not exist (4.3.0: ``streaming_job`` instead of
    the id of the session); so the zip is loaded from its own path.

    Raises ``ImportError`` with a sentence for the operator of the cluster.
    """
    import importlib.util
    import os
    import platform
    import sys

    ours = ("bridge", "zkconsumer")
    if os.path.isfile(archive) and not all(map(importlib.util.find_spec, ours)):
        sys.path.insert(0, archive)
    here = f"the Python of this Spark worker ({sys.executable}, {platform.python_version()}, on {platform.node()})"
    page = "; see migration_docs/how-to/install-on-a-spark-cluster.md, 'What must be where'"
    try:
        loaded = getattr(importlib.import_module(module), name)
        found = importlib.import_module("zkconsumer.version").__version__
    except ImportError as error:
        cure = f"Install zkconsumer {version} with its extra spark for it, or point PYSPARK_PYTHON to one that has it"
        if (error.name or "").partition(".")[0] in ours:
            cure += ", or send it with addPyFile or addArtifacts before you call register(spark)"
        raise ImportError(f"zkconsumer cannot be loaded by {here}: {error}. {cure}{page}") from error
    except AttributeError:
        found = "another version"
    if found != version:
        raise ImportError(
            f"{here} has zkconsumer {found}, and the driver has {version}. Install the same version on both{page}"
        )
    return loaded


def describe_interpreter(modules: list[str]) -> dict[str, Any]:
    """Describes this process: its interpreter, which of ``modules`` it cannot load and why, and why it decodes records
    in Python.

    ``decoder`` is empty where the compiled decoder is in use, and where a module is missing.
    """
    import importlib
    import platform
    import sys

    missing = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001  (a broken package may raise anything; the answer contains it)
            missing[module] = f"{type(error).__name__}: {error}"
    decoder = ""
    if "bridge.spark" in modules and not missing:
        decoder = importlib.import_module("bridge.spark.decode.arrow_decoder").python_decoder_reason() or ""
    return {
        "host": platform.node(),
        "executable": sys.executable,
        "python": platform.python_version(),
        "missing": missing,
        "decoder": decoder,
    }


cloudpickle.register_pickle_by_value(sys.modules[__name__])

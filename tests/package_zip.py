"""The packages as a zip, as Spark's ``addPyFile`` sends them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from zkconsumer import extensions

ROOT = Path(__file__).resolve().parents[1]
OURS = ("zkconsumer", "bridge", "pyspark_zkconsumer")
"""The packages of a wheel."""


def compiled_files() -> list[Path]:
    """Those of the compiled modules that are installed here: in an editable installation, beside the sources."""
    found = []
    for name in extensions.EXTENSION_MODULES:
        folder, _, stem = name.replace(".", "/").rpartition("/")
        found += sorted((ROOT / folder).glob(f"{stem}.*.so")) or sorted((ROOT / folder).glob(f"{stem}.so"))
    return found


def make_zip(path: Path, *, with_compiled: bool = True) -> Path:
    """All modules; the compiled ones as far as they were built."""
    with zipfile.ZipFile(path, "w") as made:
        for name in OURS:
            for file in (ROOT / name).rglob("*.py"):
                made.write(file, file.relative_to(ROOT))
        for file in compiled_files() if with_compiled else []:
            made.write(file, file.relative_to(ROOT))
    return path

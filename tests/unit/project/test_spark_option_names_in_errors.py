"""What a Spark query can show of ours names options of the source, and none of a command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

OF_COMMANDS = {
    "bridge/spark/pipeline/pipeline_session.py": "opens the session of `zkconsumer pipeline …` by its option --master",
    "bridge/spark/pipeline/java_process.py": "what `zkconsumer pipeline …` prints; the option is one of timeout(1)",
    "bridge/spark/pipeline/audit/audit_report.py": "what `zkconsumer pipeline audit` prints",
    "bridge/spark/pipeline/audit/log_entry_reader.py": "a line of `zkconsumer pipeline audit`",
    "bridge/spark/pipeline/audit/stored_rows.py": "a line of `zkconsumer pipeline audit`",
    "bridge/spark/pipeline/backfill/backfill_bounds.py": "reads the options of `zkconsumer pipeline backfill`",
    "bridge/spark/pipeline/backfill/backfill_run.py": "names them in errors about offsets that the topics do not have",
    "zkconsumer/admin/offset_plan.py": "plans what `zkconsumer offsets` writes; Spark takes one function of it",
    "zkconsumer/admin/offset_targets.py": "reads the options of `zkconsumer offsets set`",
    "zkconsumer/admin/text_format.py": "the sentence of `zkconsumer groups describe` about a group of the coordinator",
}
"""Modules that are imported, and whose texts with options only commands show."""

OPTION = re.compile(r"(?<![\w<-])--[a-z]")
WHOLE_COMMAND = re.compile(r"(zkconsumer [a-z][a-z -]*|[\w-]+\.sh |spark-submit |pip )[^\n]*--[a-z]")


def module_file(name: str) -> Path | None:
    path = ROOT / name.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def imported(file: Path) -> Iterator[Path]:
    """The files of ours that this one imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in ("zkconsumer", "bridge") and (found := module_file(name)) is not None:
                yield found


def reachable() -> set[Path]:
    found: set[Path] = set()
    to_do = sorted((ROOT / "bridge" / "spark").rglob("*.py"))
    while to_do:
        file = to_do.pop()
        if file not in found:
            found.add(file)
            to_do += imported(file)
    return found


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Every text but docstrings and comments of names; parts of an f-string together."""
    tree = ast.parse(file.read_text("utf-8"))
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            left_out |= {id(part) for part in parts}
            yield node.lineno, "…".join(str(part.value) for part in parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def test_no_text_that_a_query_can_show_names_an_option_of_a_command_line() -> None:
    files = reachable()
    assert {
        "zkconsumer/zk/kazoo_store.py",
        "zkconsumer/admin/admin_session.py",
        "bridge/spark/membership/membership_process.py",
    } <= {file.relative_to(ROOT).as_posix() for file in files}
    found = [
        f"{name}:{line}: {text}"
        for file in sorted(files)
        if (name := file.relative_to(ROOT).as_posix()) not in OF_COMMANDS
        for line, text in texts(file)
        if OPTION.search(text) and not WHOLE_COMMAND.search(text)
    ]
    assert found == []


def test_what_is_excepted_is_still_there() -> None:
    for name in OF_COMMANDS:
        assert any(OPTION.search(text) for _, text in texts(ROOT / name)), f"{name} needs no exception any more"

"""Figures about the text and the structure of the product, for one checkout or for two side by side.

    python tests/figures.py [CHECKOUT_BEFORE] [CHECKOUT_NOW]

Without arguments: the checkout in which this file is.  With one: that one, and this one.  Nothing is imported, so a
checkout of any commit can be measured.  Stateful files are those of ``STATEFUL``; where a checkout has other names
for them, pass ``--stateful GLOB`` (several times) for the first one.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("zkconsumer", "bridge", "pyspark_zkconsumer")
STATEFUL = (
    "zkconsumer/member/*_machine.py",
    "zkconsumer/member/offset_committer.py",
    "zkconsumer/member/position_reader.py",
    "zkconsumer/member/partition_releaser.py",
    "zkconsumer/member/owner_watch_scheduler.py",
    "zkconsumer/member/new_partition_tracker.py",
    "zkconsumer/member/partition_acquirer.py",
    "zkconsumer/member/rebalance_retries.py",
    "zkconsumer/member/diagnosis_schedule.py",
    "zkconsumer/member/consumer_id_conflict.py",
    "zkconsumer/member/assignment_planner.py",
    "zkconsumer/zk/conditional_writes.py",
    "bridge/migration/dual/machine/*.py",
    "bridge/migration/dual/connector/*.py",
)
WORDS = ("told", "nobody", "stands", "modern", "somebody", "seat", "whoever")
POSITIONAL_MAX = 5
COMMAND_DECORATORS = ("command", "group", "option", "argument", "pass_context")


@dataclass
class SourceText:
    """Lines of one module by kind.  A line with code and a comment is a code line."""

    code: int = 0
    text: int = 0
    functions: int = 0
    asserts: int = 0
    long_signatures: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)


def text_lines(source: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines that are docstrings, text after a definition, or comments alone."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#"):
            found.add(token.start[0])
    return found


def is_counted(node: ast.Assert) -> bool:
    """Whether an assert states a rule: ``is not None`` and ``isinstance`` are there for the type checker."""
    match node.test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(None)]):
            return False
        case ast.Call(ast.Name("isinstance")):
            return False
        case _:
            return True


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether click calls it."""
    names = (ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list)
    return any(name in COMMAND_DECORATORS for name in names)


def measure(path: Path) -> SourceText:
    """One module."""
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    texts = text_lines(source, tree)
    filled = {number for number, line in enumerate(source.splitlines(), 1) if line.strip()}
    found = SourceText(code=len(filled - texts), text=len(filled & texts))
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name, args) | ast.AsyncFunctionDef(name, args):
                found.functions += 1
                positional = [each.arg for each in args.posonlyargs + args.args if each.arg not in ("self", "cls")]
                if len(positional) > POSITIONAL_MAX and not is_command(node):
                    found.long_signatures.append(f"{path.name}:{node.lineno} {name}")
            case ast.Assert() if is_counted(node):
                found.asserts += 1
            case ast.ClassDef(name):
                found.classes.append(name)
    return found


def imports_between(root: Path) -> set[tuple[str, str]]:
    """Pairs of folders of the product of which the first imports the second."""
    edges: set[tuple[str, str]] = set()
    for path in modules(root):
        home = path.parent.relative_to(root).as_posix().replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ImportFrom(str(module)) if module.split(".")[0] in PACKAGES:
                    folder = module if (root / module.replace(".", "/")).is_dir() else module.rpartition(".")[0]
                    if folder not in ("", home):
                        edges.add((home, folder))
                case _:
                    pass
    return edges


def modules(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))


def count_words(paths: Sequence[Path]) -> dict[str, int]:
    text = "\n".join(path.read_text("utf-8") for path in paths).lower()
    return {word: len(re.findall(rf"\b{word}\b", text)) for word in WORDS}


def figures(root: Path, stateful: Sequence[str]) -> dict[str, str]:
    """Name -> value, in the order of the report."""
    measured = {path: measure(path) for path in modules(root)}
    chosen = [measured[path] for pattern in stateful for path in sorted(root.glob(pattern)) if path in measured]
    homes: defaultdict[str, set[Path]] = defaultdict(set)
    for path, found in measured.items():
        for name in found.classes:
            homes[name].add(path)
    files: defaultdict[tuple[str, str], set[Path]] = defaultdict(set)
    for path in measured:
        files[(path.relative_to(root).parts[0], path.name)].add(path)
    pages = [root / "README.md", *sorted((root / "migration_docs").rglob("*.md"))]
    in_product, in_pages = count_words(list(measured)), count_words(pages)
    code, text = sum(each.code for each in measured.values()), sum(each.text for each in measured.values())
    return {
        "code lines of the product": f"{code:,}",
        "comment and docstring lines per code line": f"{text / code:.2f}",
        "the same, stateful files": f"{_ratio(chosen, 'text', 'code'):.2f}",
        "asserts per function, stateful files": f"{_ratio(chosen, 'asserts', 'functions'):.2f}",
        "stateful files": f"{len(chosen)}",
        f"functions with more than {POSITIONAL_MAX} positional parameters": str(
            sum(len(each.long_signatures) for each in measured.values())
        ),
        "modules": str(len(measured)),
        "class names in two modules": str(sum(len(paths) > 1 for paths in homes.values())),
        "file names in two folders of a package": str(
            sum(len(paths) > 1 for (_, name), paths in files.items() if name != "__init__.py")
        ),
        "import edges between folders": str(len(imports_between(root))),
        "words of the review, product": f"{sum(in_product.values())} ({_listed(in_product)})",
        "words of the review, pages": f"{sum(in_pages.values())} ({_listed(in_pages)})",
    }


def _ratio(chosen: Sequence[SourceText], above: str, below: str) -> float:
    total = sum(getattr(each, below) for each in chosen)
    return sum(getattr(each, above) for each in chosen) / total if total else 0.0


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{word} {count}" for word, count in counts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "checkouts", nargs="*", type=Path, metavar="CHECKOUT", help="at most two; the first is 'before'"
    )
    parser.add_argument("--stateful", action="append", metavar="GLOB", help="stateful files of the first checkout")
    given = parser.parse_args()
    if len(given.checkouts) > 2:
        parser.error("at most two checkouts")
    roots = [path.resolve() for path in given.checkouts] or [ROOT]
    if len(given.checkouts) == 1:
        roots.append(ROOT)
    columns = [figures(roots[0], given.stateful or STATEFUL), *(figures(root, STATEFUL) for root in roots[1:])]
    for name in columns[0]:
        print(f"{name}: " + " -> ".join(column[name] for column in columns))


if __name__ == "__main__":
    main()

"""``tests/figures.py``: what counts as text, as a rule, and as a long signature."""

from __future__ import annotations

from pathlib import Path

from tests.figures import figures, measure

MODULE = '''"""A module.

Two lines.
"""

LIMIT = 3
"""What the limit is."""


def decide(a, b, c, d, e, f):  # six
    # A comment alone.
    assert a is not None
    assert isinstance(b, int)
    assert a < b, "a rule"
    return a


class Machine:
    def handle(self, a, b, c, d, e): ...
'''


def test_lines_asserts_and_signatures_of_a_module(tmp_path: Path) -> None:
    path = tmp_path / "machine.py"
    path.write_text(MODULE)
    found = measure(path)
    assert (found.text, found.code) == (5, 8)
    assert (found.asserts, found.functions) == (1, 2), "what the type checker needs is no rule"
    assert found.long_signatures == ["machine.py:10 decide"]
    assert found.classes == ["Machine"]


def test_the_figures_of_a_checkout(tmp_path: Path) -> None:
    for folder in ("zkconsumer", "bridge/member", "migration_docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "zkconsumer" / "machine.py").write_text(MODULE)
    (tmp_path / "bridge" / "member" / "machine.py").write_text("from zkconsumer.machine import Machine\n")
    (tmp_path / "README.md").write_text("It is told. Nobody stands.\n")
    found = figures(tmp_path, ["zkconsumer/*.py"])
    assert found["code lines of the product"] == "9"
    assert found["asserts per function, stateful files"] == "0.50"
    assert found["import edges between folders"] == "1"
    assert found["file names in two folders of a package"] == "0", "they are in two packages"
    assert found["words of the review, pages"].startswith("3 (told 1, nobody 1, stands 1, ")

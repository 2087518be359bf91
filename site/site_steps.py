"""What the site adds to Sphinx: the navigation, references to public names, code in docstrings, ``index.html``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from tests.public_api import API_MODULES, MADE_HERE, OPAQUE, exported

ROOT = Path(__file__).resolve().parent.parent
INDEX = "migration_docs/README"
API_PAGES = (
    "zookeeper-groups", "simple-consumer", "coordinator-groups", "spark", "testing", "java-names", "errors",
    "prometheus",
)  # fmt: skip
"""In the order of the navigation."""
SHORT_CODE_CHARS_MAX = 24
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([\w./-]+)\.md\)")


# --- the navigation -------------------------------------------------------------------------------------------------


def navigation(index: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each section of the index page with the documents that it links: the page is the only list of pages."""
    seen: set[str] = set()
    for section in index.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found = [f"migration_docs/{target}" for target in LINK.findall(text)]
        yield title, [each for each in dict.fromkeys(found) if each not in seen]
        seen.update(found)


def add_navigation(_app: Sphinx, docname: str, content: list[str]) -> None:
    """Append the hidden tables of contents to the start page."""
    if docname != "README":
        return
    sections = dict(navigation((ROOT / f"{INDEX}.md").read_text("utf-8")))
    maintainers = sections.pop("For maintainers")
    examples = sorted(path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("examples/*/README.md"))
    sections |= {"Python API": [f"site/api/{each}" for each in API_PAGES], "Examples": examples}
    sections |= {"The project": ["CHANGELOG", "CONTRIBUTING", "SECURITY", *maintainers]}
    for title, documents in ({"": [INDEX]} | sections).items():
        caption = [f":caption: {title}"] if title else []
        lines = ["```{toctree}", ":hidden:", *caption, "", *(f"/{each}" for each in documents), "```"]
        content[0] += "\n" + "\n".join(lines) + "\n"


def fold_navigation(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None
) -> None:
    """Make each section of the navigation one that a reader opens; that of the page is open."""

    def folded(found: re.Match[str]) -> str:
        is_open = " open" if "current" in found[2] else ""
        return f"<details{is_open}><summary>{found[1]}</summary>{found[2]}</details>"

    tree = re.compile(r'<p class="caption" role="heading"><span class="caption-text">(.*?)</span></p>\s*(<ul.*?</ul>)'
                      r"(?=\s*(?:<p|</div|$))", re.DOTALL)  # fmt: skip
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = tree.sub(folded, context["furo_navigation_tree"])


# --- names and docstrings -------------------------------------------------------------------------------------------


@cache
def public_names() -> dict[str, str]:
    """Full public name, name without its module, and name in the private module -> full public name.

    A signature has one of the three.
    """
    found: dict[str, str] = {}
    origins: dict[str, str] = {}
    for module in reversed(API_MODULES):
        for name, described in exported(module):
            public = f"{module}.{name}"
            origin = f"{getattr(described, '__module__', module)}.{getattr(described, '__qualname__', name)}"
            found |= {origin: public, name: public}
            origins[public] = origin
    return {public: found[origin] for public, origin in origins.items()} | found


def name_public_types(_app: Sphinx, doctree: nodes.document) -> None:
    """Lead each type in a signature to its public name; one without a module is first a name of the page's module."""
    for node in doctree.findall(pending_xref):
        if node.get("refdomain") == "py":
            target = node["reftarget"]
            of_module = public_names().get(f"{node.get('py:module')}.{target}")
            node["reftarget"] = of_module or public_names().get(target, target)


def keep_short_code_whole(_app: Sphinx, doctree: nodes.document) -> None:
    """A browser may break a line after each hyphen of an option."""
    for code in doctree.findall(nodes.literal):
        if len(code.astext()) <= SHORT_CODE_CHARS_MAX:
            code["classes"].append("short")


def leave_out_object(_app: Sphinx, doctree: nodes.document) -> None:
    """That a class derives from ``object`` alone says nothing."""
    for line in [each for each in doctree.findall(nodes.paragraph) if each.astext() == "Bases: object"]:
        line.parent.remove(line)


def unlink_other_types(
    _app: Sphinx, _env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Types of Python, of other packages, and of ours inside have no page; a public one without a page is a warning."""
    target = str(node["reftarget"])
    if node.get("refdomain") != "py" or target in public_names().values():
        return None
    return content if content.astext() else nodes.Text(target)  # "...", which Sphinx takes for a name with an empty end


def show_public_bases(_app: Sphinx, _name: str, _class: type, _options: Any, bases: list[Any]) -> None:
    """Of the classes that a class derives from, show those that a program can import."""
    shown = [each for each in bases if getattr(each, "__name__", "") in public_names() or each.__module__ == "builtins"]
    bases[:] = shown or [object]


def hide_constructor(
    _app: Sphinx, what: str, _name: str, described: Any, _options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Programs receive objects of these classes and make none."""
    is_made_here = what == "class" and described.__name__ in MADE_HERE | OPAQUE.keys()
    return ("", None) if is_made_here else (signature, returned)


def mark_code(_app: Sphinx, _what: str, _name: str, _described: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings show code as an indented block: for Sphinx it needs ``::`` before it."""
    found: list[str] = []
    for number, line in enumerate(lines):
        if line.startswith("    ") and number and not lines[number - 1].strip():
            is_first = not next((each for each in reversed(lines[:number]) if each.strip()), "").startswith("    ")
            found += ["::", ""] if is_first else []
        found.append(line)
    lines[:] = found


# --- the start page -------------------------------------------------------------------------------------------------


def copy_start_page(app: Sphinx, error: Exception | None) -> None:
    """A web server shows ``index.html``."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", name_public_types)
    app.connect("doctree-read", leave_out_object)
    app.connect("doctree-read", keep_short_code_whole)
    app.connect("missing-reference", unlink_other_types)
    app.connect("autodoc-process-docstring", mark_code)
    app.connect("autodoc-process-bases", show_public_bases)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("html-page-context", fold_navigation, priority=900)  # after furo has made the tree
    app.connect("build-finished", copy_start_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

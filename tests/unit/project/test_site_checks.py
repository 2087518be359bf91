"""The checks of the built documentation site find what they are for.  ``tests/build_site.py`` applies them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.build_site import ROOT, sources
from tests.site_checks import (
    COMMANDS_PAGE,
    Page,
    link_problems,
    missing_commands,
    missing_names,
    missing_pages,
    missing_words,
    read_site,
    style_problems,
)


def problems_of(folder: Path, **pages: str) -> list[str]:
    """Of a site with these pages: name without ``.html`` -> HTML."""
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return list(link_problems(read_site(folder), folder))


def test_a_site_in_which_every_link_leads_somewhere(tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text("<svg/>")
    first = (
        '<a href="two.html#x%20y">t</a><a href="#here">h</a><p id="here"><img src="a.svg" alt="A"><a href="https://h/">'
    )
    assert problems_of(tmp_path, one=first, two='<p id="x y"><a href="one.html?q=1#here">') == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<a href="none.html">', "one.html: none.html leads to no file"),
        ('<a href="../one.html">', "one.html: ../one.html leads to no file"),
        ('<a href="one.html#none">', "one.html: one.html#none leads to no anchor"),
        ('<a href="#none">', "one.html: #none leads to no anchor"),
        ('<img src="none.svg" alt="A">', "one.html: none.svg is loaded and does not exist"),
        ('<img src="data:," alt=" ">', "one.html: the image data:, has no text alternative"),
        ('<img src="data:,">', "one.html: the image data:, has no text alternative"),
        ('<script src="https://h/x.js"></script>', "one.html: https://h/x.js is loaded from another host"),
        ('<link rel="stylesheet" href="//h/x.css">', "one.html: //h/x.css is loaded from another host"),
    ],
)
def test_what_a_reader_would_miss_is_found(tmp_path: Path, text: str, problem: str) -> None:
    assert problems_of(tmp_path, one=text) == [problem]


@pytest.mark.parametrize("rule", ["src: url('https://h/f.woff2')", '@import "//h/x.css"', "src: url(http://h/f.woff2)"])
def test_a_style_sheet_that_needs_another_host_is_found(tmp_path: Path, rule: str) -> None:
    (tmp_path / "x.css").write_text(f"a {{ background: url(x.png) }} {rule};")
    assert len(list(style_problems(tmp_path))) == 1


def test_a_page_that_is_not_built_and_one_that_no_page_links_are_found() -> None:
    site = {"README.html": Page(links=["a/one.html", "README.html"]), "a/one.html": Page(), "a/two.html": Page()}
    found = list(missing_pages(site, ["README.md", "a/one.md", "a/two.md", "a/three.rst"]))
    assert found == ["a/two.html: no page links it", "a/three.rst is not in the site"]


def test_a_public_name_without_a_description_is_found() -> None:
    all_but_one = {"zkconsumer.errors.UsageError"}
    found = list(missing_names({"api.html": Page(ids=all_but_one)}, ["zkconsumer.errors"]))
    assert "zkconsumer.errors.PeerError is not in the API reference" in found
    assert "zkconsumer.errors.UsageError is not in the API reference" not in found
    assert not any("Any" in each for each in found), "what the module imports is not its own"


def test_a_class_that_two_modules_export_is_described_once() -> None:
    site = {"api.html": Page(ids={"zkconsumer.Whitelist"})}
    found = list(missing_names(site, ["zkconsumer", "zkconsumer.javaapi"]))
    assert "zkconsumer.javaapi.Consumer is not in the API reference" in found
    assert not any(".Whitelist " in each for each in found)


def test_a_command_without_an_entry_is_found() -> None:
    found = list(missing_commands({COMMANDS_PAGE: Page(ids={"zkconsumer", "zkconsumer-groups-list"})}))
    assert f"zkconsumer migrate apply is not in {COMMANDS_PAGE}" in found
    assert not any(each.startswith("zkconsumer groups list ") for each in found)


def test_a_word_that_the_search_does_not_know_is_found() -> None:
    index = f"Search.setIndex({json.dumps({'terms': {'rebal': 1}, 'titleterms': {'lag': 2}})})"
    assert list(missing_words(index, ["rebalance", "lag", "chroot"])) == ["the search does not find chroot"]


def test_every_page_of_the_tree_is_a_source_of_the_site() -> None:
    found = set(sources())
    of_docs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "migration_docs").rglob("*.md")}
    assert of_docs | {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} <= found
    assert {f"site/api/{name}.rst" for name in ("zookeeper-groups", "errors")} <= found


def test_the_navigation_is_the_index_of_the_pages() -> None:
    steps = site_steps()
    sections = dict(steps.navigation((ROOT / "migration_docs" / "README.md").read_text("utf-8")))
    assert list(sections)[:3] == ["Tutorial", "How-to for operators", "How-to for programmers"]
    named = [each for documents in sections.values() for each in documents]
    assert len(set(named)) == len(named)
    of_docs = {f"migration_docs/{path.parent.name}/{path.stem}" for path in (ROOT / "migration_docs").glob("*/*.md")}
    assert set(named) == of_docs


def test_code_in_a_docstring_becomes_a_literal_block() -> None:
    lines = ["Reads.", "", "    one()", "", "    two()", "", "Then."]
    site_steps().mark_code(None, "", "", None, None, lines)
    assert lines == ["Reads.", "", "::", "", "    one()", "", "    two()", "", "Then."]


def test_the_section_of_the_page_is_open_in_the_navigation() -> None:
    sections = "".join(
        f'<p class="caption" role="heading"><span class="caption-text">{name}</span></p>\n<ul{kind}><li>x</li></ul>\n'
        for name, kind in (("Tutorial", ""), ("Reference", ' class="current"'))
    )
    context = {"furo_navigation_tree": f'<div class="sidebar-tree"><ul><li>first</li></ul>\n{sections}</div>'}
    site_steps().fold_navigation(None, "", "", context, None)
    assert context["furo_navigation_tree"].replace("\n", "") == (
        '<div class="sidebar-tree"><ul><li>first</li></ul>'
        "<details><summary>Tutorial</summary><ul><li>x</li></ul></details>"
        '<details open><summary>Reference</summary><ul class="current"><li>x</li></ul></details></div>'
    )


def site_steps():  # type: ignore[no-untyped-def]
    """The extension of Sphinx in ``site/``."""
    pytest.importorskip("sphinx")
    path = ROOT / "site" / "site_steps.py"
    spec = importlib.util.spec_from_file_location("site_steps", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

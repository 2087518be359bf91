"""What the built documentation site must be like.  Reads files, and imports what the site describes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.public_api import API_MODULES, exported
from tests.reference_pages.command_options_page import described_commands

COMMANDS_PAGE = "migration_docs/reference/command-options.html"
WORDS = ("rebalance", "chroot", "watermark", "postgresql", "backfill", "mirrormaker", "lag")
"""Words of several pages that a reader may search."""
SUFFIX_CHARS_MAX = 4
LOADED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "link": "href", "object": "data"}
"""Tag -> attribute of what a browser loads without a click."""


@dataclass
class Page:
    """What one HTML file has: ids, links, what the browser loads, and images without a text alternative."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    images_without_text: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.page.ids.add(found["id"])
        if tag == "a" and found.get("href"):
            self.page.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]):
            self.page.loaded.append(found[LOADED[tag]])
        if tag == "img" and not found.get("alt", "").strip():
            self.page.images_without_text.append(found.get("src", ""))


def read_page(text: str) -> Page:
    """The parts of an HTML file that are checked."""
    reader = _Reader()
    reader.feed(text)
    return reader.page


def read_site(folder: Path) -> dict[str, Page]:
    """Path below the folder -> page, for every HTML file."""
    paths = sorted(folder.rglob("*.html"))
    return {path.relative_to(folder).as_posix(): read_page(path.read_text("utf-8")) for path in paths}


def _target(name: str, link: str) -> tuple[str, str] | None:
    """The file below the site and the anchor to which a link of this page leads; None: another host."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    if not parts.path:
        return name, unquote(parts.fragment)
    steps = [*name.split("/")[:-1]]
    for step in unquote(parts.path).split("/"):
        if step == ".." and steps:
            steps.pop()
        elif step not in ("", "."):
            steps.append(step)
    return "/".join(steps), unquote(parts.fragment)


def link_problems(site: Mapping[str, Page], folder: Path) -> Iterator[str]:
    """Links and loaded files inside the site that do not exist, and files that the browser loads from other hosts."""
    for name, page in site.items():
        for link in page.links:
            target = _target(name, link)
            if target is None:
                continue
            path, anchor = target
            if not (folder / path).is_file():
                yield f"{name}: {link} leads to no file"
            elif anchor and path in site and anchor not in site[path].ids:
                yield f"{name}: {link} leads to no anchor"
        for address in page.loaded:
            target = _target(name, address)
            if target is None and not address.startswith("data:"):
                yield f"{name}: {address} is loaded from another host"
            elif target is not None and not (folder / target[0]).is_file():
                yield f"{name}: {address} is loaded and does not exist"
        yield from (f"{name}: the image {each} has no text alternative" for each in page.images_without_text)


def style_problems(folder: Path) -> Iterator[str]:
    """Style sheets that load something from another host."""
    for path in sorted(folder.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text("utf-8")):
            yield f"{path.relative_to(folder)}: {address} is loaded from another host"


def missing_pages(site: Mapping[str, Page], sources: Iterable[str]) -> Iterator[str]:
    """Sources without a page, and pages that no other page links."""
    linked = {target[0] for name, page in site.items() for link in page.links if (target := _target(name, link))}
    for source in sources:
        name = re.sub(r"\.(md|rst)$", ".html", source)
        if name not in site:
            yield f"{source} is not in the site"
        elif name not in linked:
            yield f"{name}: no page links it"


def missing_names(site: Mapping[str, Page], modules: Iterable[str] = API_MODULES) -> Iterator[str]:
    """Public classes and functions without a description.  A class that two modules export is described once."""
    ids = {each for page in site.values() for each in page.ids}
    names = [(f"{module}.{name}", value) for module in modules for name, value in exported(module) if callable(value)]
    described = {value for name, value in names if name in ids}
    yield from (f"{name} is not in the API reference" for name, value in names if value not in described)


def missing_commands(site: Mapping[str, Page]) -> Iterator[str]:
    """Commands without an entry."""
    for context in described_commands():
        if context.command_path.replace(" ", "-") not in site[COMMANDS_PAGE].ids:
            yield f"{context.command_path} is not in {COMMANDS_PAGE}"


def missing_words(index: str, words: Iterable[str] = WORDS) -> Iterator[str]:
    """``index``: the text of ``searchindex.js``.  It has stems: a word without up to ``SUFFIX_CHARS_MAX`` letters."""
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    terms = found["terms"].keys() | found["titleterms"].keys()
    for word in words:
        if not any(word[:length] in terms for length in range(max(3, len(word) - SUFFIX_CHARS_MAX), len(word) + 1)):
            yield f"the search does not find {word}"


def site_problems(folder: Path, sources: Iterable[str]) -> list[str]:
    """``sources``: the paths of the pages below the root of the tree."""
    site = read_site(folder)
    return [
        *missing_pages(site, sources),
        *link_problems(site, folder),
        *style_problems(folder),
        *missing_names(site),
        *missing_commands(site),
        *missing_words((folder / "searchindex.js").read_text("utf-8")),
    ]

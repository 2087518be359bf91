"""Chromium from the system, driven by Playwright, and axe-core from npm; each lack is a skip, in CI a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.debian_packages import CHROMIUM, NPM
from tests.requirement_fixtures import report_lack, require_program
from zkconsumer.testing.sandbox import cache

AXE_VERSION = "4.14.1"
NPM_TIMEOUT_S = 120
NPM_UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ETIMEDOUT")
"""Codes that npm prints when its registry does not answer."""

SCREENSHOTS_VARIABLE = "ZKCONSUMER_SCREENSHOTS"
"""Names a folder for the screenshots; without it they are in pytest's temporary folder."""

START = "from zkconsumer.cli.main import main; main()"

View: TypeAlias = tuple[int, str]
"""Width of the window in pixels, and its theme."""

ALL_VIEWS: tuple[View, ...] = tuple((width, theme) for theme in ("light", "dark") for width in (1280, 400))
TWO_VIEWS: tuple[View, ...] = ((1280, "light"), (400, "dark"))
"""Each width and each theme once."""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core; npm downloads it once into the cache."""
    file = cache.folder("npm") / f"axe-core-{AXE_VERSION}.min.js"
    if not file.exists():
        npm = require_program(NPM)
        with tempfile.TemporaryDirectory() as folder:
            source = download_axe(npm, Path(folder))
            part = file.with_name(f"{file.name}.{os.getpid()}")
            part.write_text(source, "utf-8")
            part.replace(file)
    return file.read_text("utf-8")


def download_axe(npm: str, folder: Path) -> str:
    """The source from npm's registry; ``report_lack`` without it."""
    command = [npm, "pack", "--silent", f"axe-core@{AXE_VERSION}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT_S, check=False)
    if done.returncode:
        reason = f"axe-core cannot be downloaded: {done.stderr[-300:]}"
        if any(code in done.stderr for code in NPM_UNREACHABLE):
            pytest.skip(f"{reason} (the registry did not answer)")
        report_lack(reason)
    with tarfile.open(folder / f"axe-core-{AXE_VERSION}.tgz") as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go."""
    folder = Path(os.environ.get(SCREENSHOTS_VARIABLE) or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def launched_chromium() -> Iterator[Any]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM.find(), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("playwright.sync_api")
    require_program(CHROMIUM)
    with launched_chromium() as chromium:
        yield chromium


@contextmanager
def web_command(*words: str) -> Iterator[str]:
    """Run ``zkconsumer web`` or ``demo --web``; the address that it printed."""
    process = subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http"), address
        yield address
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


class ShownPage:
    """One page of the browser; at the end it must have logged no error."""

    def __init__(self, browser: Any, address: str, axe: str, shots: Path, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self._address = address.rstrip("/")
        self._axe = axe
        self._shots = shots
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, path: str) -> None:
        self.page.goto(self._address + path)

    def wait_for_text(self, text: str, timeout_ms: int = 60_000) -> None:
        """Wait until the page has the text."""
        self.page.get_by_text(text).first.wait_for(timeout=timeout_ms)

    def wait_until(self, script: str, timeout_ms: int = 60_000) -> None:
        """Wait until the expression is true in the page.  By calls from outside: the policy forbids eval."""
        for _ in range(timeout_ms // 200):
            if self.page.evaluate(script):
                return
            self.page.wait_for_timeout(200)
        raise AssertionError(f"never true: {script}; the page has: {self.page.inner_text('main')[:2000]}")

    def text(self) -> str:
        return str(self.page.inner_text("body"))

    def check(self, name: str, views: Sequence[View] = TWO_VIEWS) -> None:
        """No violation of accessibility in these views, nothing wider than the window; a screenshot of each."""
        if "axe" not in self.page.evaluate("Object.keys(window).join()").split(","):
            self.page.evaluate(self._axe)
        for width, theme in views:
            self.page.emulate_media(color_scheme=theme)
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.wait_for_timeout(100)
            self.page.screenshot(path=self._shots / f"{name}-{width}-{theme}.png", full_page=True)
            found = self.page.evaluate("axe.run()")
            assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == [], f"{name} {width}"
            assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} {width}"

    def close(self) -> None:
        self.context.close()

"""Chromium from the system, driven by Playwright, and axe-core from npm; each lack is a clear skip, in CI a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE_VERSION = "4.14.1"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
NPM_TIMEOUT_S = 120
START = "from zkconsumer.cli.main import main; main()"


def require(is_there: object, what: str) -> None:
    """Skip the test; in CI it fails instead."""
    if is_there:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing real is skipped: {what}")
    pytest.skip(what)


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    require(shutil.which("npm"), "npm is missing: apt install npm")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        ["npm", "pack", "--silent", f"axe-core@{AXE_VERSION}"],
        cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT_S, check=False,
    )  # fmt: skip
    require(done.returncode == 0, f"axe-core cannot be downloaded: {done.stderr[-300:]}")
    with tarfile.open(folder / f"axe-core-{AXE_VERSION}.tgz") as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@contextmanager
def launched_chromium() -> Iterator[Any]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        yield chromium
        chromium.close()


def chromium_path() -> str | None:
    """Where the system has Chromium; None: nowhere."""
    return next((found for name in CHROMIUM_NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("playwright.sync_api")
    require(chromium_path(), "Chromium is missing: apt install chromium")
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

    def check(self, name: str) -> None:
        """No violation of accessibility at any width or theme, nothing wider than the window; a screenshot of each."""
        if "axe" not in self.page.evaluate("Object.keys(window).join()").split(","):
            self.page.evaluate(self._axe)
        for scheme in ("light", "dark"):
            for width in (1280, 400):
                self.page.emulate_media(color_scheme=scheme)
                self.page.set_viewport_size({"width": width, "height": 900})
                self.page.wait_for_timeout(100)
                self.page.screenshot(path=self._shots / f"{name}-{width}-{scheme}.png", full_page=True)
                found = self.page.evaluate("axe.run()")
                assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == [], f"{name} {width}"
                assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} {width}"

    def close(self) -> None:
        self.context.close()

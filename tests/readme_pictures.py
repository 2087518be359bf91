"""Makes the pictures at the head of the README from what the programs show: ``python tests/readme_pictures.py``.

    zkconsumer demo        -> migration_docs/pictures/demo.svg   what it prints, one step after the other
    zkconsumer demo --web  -> migration_docs/pictures/page.png   a group and its lag, by Chromium

The SVG has its text as text.  Where a reader has asked for less motion, it shows all steps at once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tests.web.browser_fixtures import START, launched_chromium, web_command

PICTURES = Path(__file__).resolve().parents[1] / "migration_docs" / "pictures"
DEMO, PAGE = PICTURES / "demo.svg", PICTURES / "page.png"
SHOWN_PATH = "/group?name=demo"
PAGE_WIDTH, PAGE_HEIGHT = 1100, 760
MEMBERS_MIN, EVENTS_MIN = 2, 2

COMMAND = "$ zkconsumer demo"
FONT_PX, CHARACTER_PX, LINE_PX, MARGIN_PX = 13, 7.85, 18, 14
SECONDS_PER_STEP = 2.5
STYLE = """
rect { fill: #16181d; }
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d7dae0; white-space: pre; }
.head { fill: #8ec7ff; }
@media (prefers-reduced-motion: no-preference) {
  .step { opacity: 0; animation: appear .3s linear forwards; }
  @keyframes appear { to { opacity: 1; } }
}
"""


def demo_lines() -> list[str]:
    """What ``zkconsumer demo`` prints."""
    done = subprocess.run([sys.executable, "-c", START, "demo"], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n").split("\n")


def steps_of(lines: Sequence[str]) -> list[list[str]]:
    """The parts of the output that follow each other; the empty line before a part belongs to it."""
    steps: list[list[str]] = [[COMMAND]]
    for line in lines:
        if not line or len(steps) == 1:
            steps.append([])
        steps[-1].append(line)
    return steps


def picture_of(lines: Sequence[str]) -> str:
    """The SVG: each step appears some seconds after the one before."""
    steps = steps_of(lines)
    count = sum(map(len, steps))
    width = round(2 * MARGIN_PX + CHARACTER_PX * max(map(len, lines)))
    height = 2 * MARGIN_PX + LINE_PX * count
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="What zkconsumer demo prints">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8"/>',
    ]
    y = MARGIN_PX + FONT_PX
    for number, step in enumerate(steps):
        found.append(f'<g class="step" style="animation-delay: {number * SECONDS_PER_STEP:g}s">')
        for line in step:
            kind = ' class="head"' if line == COMMAND or line[:1].isdigit() else ""
            found.append(f'<text x="{MARGIN_PX}" y="{y}"{kind}>{escape(line)}</text>')
            y += LINE_PX
        found.append("</g>")
    return "\n".join([*found, "</svg>\n"])


def photograph_page() -> None:
    """Write the picture of the page; raises where Chromium is missing."""
    with web_command("demo", "--web", "--port", "0") as address, launched_chromium() as chromium:
        page = chromium.new_page(viewport={"width": PAGE_WIDTH, "height": PAGE_HEIGHT})
        page.goto(address.rstrip("/") + SHOWN_PATH)
        page.get_by_text("demo_anna").first.wait_for()
        while page.locator(".events li").count() < EVENTS_MIN or page.locator(".mark.zkconsumer").count() < MEMBERS_MIN:
            page.wait_for_timeout(100)
        page.screenshot(path=PAGE)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    DEMO.write_text(picture_of(demo_lines()), encoding="utf-8")
    photograph_page()
    print(*(f"{each}: {each.stat().st_size:,} bytes" for each in (DEMO, PAGE)), sep="\n")


if __name__ == "__main__":
    main()

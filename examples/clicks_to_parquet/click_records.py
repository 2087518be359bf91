"""Sample clicks: JSON with the time of the click, of three hours; some are of bots, and some cannot be read.

number % 20 == 7     of a bot: filtered by ``where``
number % 50 == 11    JSON that ends in the middle: a dead letter of the stage decode
number % 50 == 31    a price that is no number: a dead letter of the stage transform
"""

from __future__ import annotations

import json

from zkconsumer.testing.sandbox.producer_process import RecordToSend

FIRST_MS = 1_767_258_000_000
"""2026-01-01 09:00 UTC."""

HOUR_MS = 3_600_000
HOURS = 3
PAGES = ("/Home", "/Cart", "/Search")

ROW, DEAD_LETTER, FILTERED = "row", "dead letter", "filtered"


def outcome_of(number: int) -> str:
    """What the pipeline makes of the click."""
    if number % 50 in (11, 31):
        return DEAD_LETTER
    return FILTERED if number % 20 == 7 else ROW


def click(number: int) -> RecordToSend:
    """The click as a record."""
    price = "none" if number % 50 == 31 else f"{number % 90}.{number % 100:02}"
    members = {"user": number % 17, "page": PAGES[number % len(PAGES)], "price": price, "bot": number % 20 == 7}
    text = json.dumps(members)
    if number % 50 == 11:
        text = text[: len(text) // 2]
    return RecordToSend(None, text.encode(), FIRST_MS + number % HOURS * HOUR_MS + number)

"""Sample orders: Avro with the schema of ``order.avsc``; some are cancelled, and some cannot be written.

number % 20 == 7     cancelled: filtered by ``where``
number % 50 == 11    bytes that end in the middle: a dead letter of the stage decode
number % 50 == 31    a customer with a zero byte, which PostgreSQL cannot store: a dead letter of the stage sink
"""

from __future__ import annotations

import io
from pathlib import Path

import fastavro

SCHEMA = fastavro.schema.load_schema(Path(__file__).resolve().with_name("order.avsc"))

ROW, FILTERED, OF_DECODE, OF_SINK = "row", "filtered", "decode", "sink"


def outcome_of(number: int) -> str:
    """What the pipeline makes of the order; a dead letter has its stage."""
    if number % 50 == 11:
        return OF_DECODE
    if number % 20 == 7:
        return FILTERED
    return OF_SINK if number % 50 == 31 else ROW


def order(number: int) -> bytes:
    """The value of a record."""
    out = io.BytesIO()
    members = {
        "id": number,
        "customer": f"customer {number % 7}" + ("\0" if number % 50 == 31 else ""),
        "cents": number * 25,
        "status": "cancelled" if number % 20 == 7 else "paid",
    }
    fastavro.schemaless_writer(out, SCHEMA, members)
    data = out.getvalue()
    return data[:3] if number % 50 == 11 else data

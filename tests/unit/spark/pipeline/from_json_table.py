"""Writes ``from_json_of_spark.json``: what ``from_json`` of Spark gives for many texts and types.

    python -m tests.unit.spark.pipeline.from_json_table       (needs Java; takes half a minute)

Run it again for another release of Spark.  ``test_rescued_json`` compares our parser with the table, without Spark.
An entry: the JSON value (for ``document``: the whole payload), the text of the column, whether the record is good.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import Column, SparkSession, functions

TABLE = Path(__file__).with_name("from_json_of_spark.json")
TIME_ZONE = "Europe/Berlin"


def shown(kind: str, column: Column) -> Column:
    """The column as text: days, microseconds, hexadecimal digits, or Spark's own."""
    if kind == "date":
        return functions.unix_date(column).cast("string")
    if kind == "timestamp":
        return functions.unix_micros(column).cast("string")
    return functions.hex(column) if kind == "binary" else column.cast("string")


def main() -> None:
    table: dict[str, list[list[object]]] = json.loads(TABLE.read_text("utf-8"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", TIME_ZONE).getOrCreate()
    for name, rows in table.items():
        is_document = name.startswith("document ")
        kind = name.removeprefix("document ")
        texts = [str(row[0]) for row in rows]
        payloads = [(i, text if is_document else f'{{"v": {text}}}') for i, text in enumerate(texts)]
        parsed = functions.from_json("payload", f"v {kind}, _bad string", {"columnNameOfCorruptRecord": "_bad"})
        found = (
            spark.createDataFrame(payloads, "i int, payload string")
            .select("i", shown(kind, parsed["v"]).alias("v"), parsed["_bad"].isNull().alias("good"))
            .orderBy("i")
            .collect()
        )
        table[name] = [[text, row["v"], row["good"]] for text, row in zip(texts, found, strict=True)]
    spark.stop()
    lines = (
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in table.items()
    )
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()

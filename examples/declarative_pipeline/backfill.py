"""Reads the clicks again that a full refresh has removed, as a batch, into a table beside the streaming table.

    python backfill.py REMOTE ZOOKEEPER ENDING_OFFSETS

REMOTE is the Spark Connect server, sc://HOST:PORT.  ENDING_OFFSETS is JSON: where the streaming table begins, for each
partition.  Prints the number of rows of the streaming table, and of the view ``all_clicks``, which has both tables.

Do not insert into the streaming table itself: Spark reads its files by the log that its stream has written
(``_spark_metadata``), so the inserted rows are in the folder and no query sees them.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def main(remote: str, zookeeper: str, ending_offsets: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    # A batch joins no group, and moves no offset.
    records = (
        spark.read.format("zkconsumer")
        .option("zookeeper.connect", zookeeper)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", ending_offsets)
        .load()
    )
    click = sf.from_json(sf.col("value").cast("string"), "user BIGINT, page STRING")
    rows = records.select(click.alias("click"), "partition", "offset").select("click.*", "partition", "offset")
    rows.write.mode("overwrite").saveAsTable("clicks_backfill")
    spark.sql("CREATE OR REPLACE VIEW all_clicks AS SELECT * FROM clicks UNION ALL SELECT * FROM clicks_backfill")
    places = spark.table("all_clicks").select("partition", "offset")
    print(f"rows {spark.table('clicks').count()} {places.count()} {places.distinct().count()}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

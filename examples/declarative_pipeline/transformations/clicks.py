"""The tables of the pipeline: ``clicks`` reads the group, ``pages`` counts the clicks of each page."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

ZOOKEEPER = "127.0.0.1:2181/kafka"  # YOURS: the value of the old members, with its chroot; run.py sets it


@dp.table
def clicks() -> DataFrame:
    """A streaming table: each run appends what the group has not read yet."""
    records = (
        SparkSession.active()
        .readStream.format("zkconsumer")
        .option("zookeeper.connect", ZOOKEEPER)
        .option("group.id", "clicks")
        .option("subscribe", "clicks")
        .option("startingOffsets", "group")
        .option("auto.offset.reset", "smallest")
        .option("group.offsets.commit", "claim")
        .load()
    )
    click = sf.from_json(sf.col("value").cast("string"), "user BIGINT, page STRING")
    return records.select(click.alias("click"), "partition", "offset").select("click.*", "partition", "offset")


@dp.materialized_view
def pages() -> DataFrame:
    """Computed again by each run."""
    return SparkSession.active().read.table("clicks").groupBy("page").count()

"""Spark looks for modules of this kind of name, and registers their ``DefaultSource``: ``format("zkconsumer")``."""

from bridge.spark.source.datasource_registration import default_source

DefaultSource = default_source()

"""Spark finds modules with names of this form, and registers their ``DefaultSource``: ``format("zkconsumer")``."""

from bridge.spark.source.datasource_registration import default_source

DefaultSource = default_source()

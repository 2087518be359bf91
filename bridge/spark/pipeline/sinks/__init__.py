"""The sinks of a pipeline: each stores rows, offset ranges and counts of a batch in one atomic commit, but for topics.

    sink            the Protocol ``Sink`` and what all sinks have in common
    sink_choice     the sink of a section of the pipeline file
    parquet_sink    files, visible through a manifest for each batch
    delta_sink      a Delta table: a batch is one commit of its log (pyspark 4.2.0); stored_delta_table reads it without
                    Spark
    postgres_sink   a table of PostgreSQL, and a table of batches
    topic_sink      records of a topic, at least once, and a file with the lineage of each batch beside the checkpoint

The batch writer calls ``committed``, ``write`` and ``commit`` for each batch; the commands of a pipeline ``check``,
``prepare``, ``lineages``, ``reserve``, ``release`` and ``remove_leftovers``.
"""

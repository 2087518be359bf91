"""Writes rows of Spark to topics: ``writeStream.format("zkconsumer")`` and ``write.format("zkconsumer")``.

rows --sink_columns--> columns --row_partitioning--> rows of one partition --produce_machine--> brokers
                                                                              topic_writer (I/O)
"""

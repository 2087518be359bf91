"""The audit of a pipeline: the logs of its topics against the offset ranges and counts in its sink.

offset_set         a set of offsets
lineage_totals     the batches of a sink, merged as they come                         pure
entry_counts       records, markers and holes in a record set                         pure
audit_facts        what was read of the logs, the group, the checkpoint and the sink  pure
audit_findings     each gap with its reason                                           pure
audit_buckets      the same by time of the messages                                   pure
audit_report       the result as text lines and as JSON                               pure
log_entry_reader   reads ranges whose counts do not close from the brokers
stored_rows        counts the rows that the sink has
audit_run          reads everything, in an order that a running pipeline cannot falsify
"""

"""``KafkaConsumer``: Kafka 3.0's consumer with ``poll``, on the network client, the fetcher and the group's machine.

kafka_consumer.py        the methods of a program
consumer_components.py   makes the parts from a configuration, ``kafka_consumer_config.py``
polled_coordinator.py    runs the machine of the group member in ``poll`` and in ``heartbeat_thread.py``
committed_offset_load.py begins each partition at its committed offset
consumer_records.py      the result of ``poll``
consumer_metrics.py      Java's names of the metrics
"""

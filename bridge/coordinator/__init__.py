"""The group coordinator, server side: a pure state machine, and the code that converts requests to its events.

    connection --request--> kafka_apis --event--> GroupCoordinator --commands--> reply, append, timer
                                                        ^                              |
                                                        '---------- appended, fired ---'

One ``GroupCoordinator`` has all groups of one broker, in the partitions of ``__consumer_offsets`` that the broker
leads. It uses no socket, file, clock or random number: see ``events`` and ``commands``.
"""

"""The group coordinator, server side: a pure machine, and what turns requests into its events.

    connection --request--> kafka_apis --event--> GroupCoordinator --commands--> reply, append, timer
                                                        ^                              |
                                                        '---------- appended, fired ---'

One ``GroupCoordinator`` keeps all groups of one broker, spread over the partitions of ``__consumer_offsets`` that the
broker leads.  It opens no socket and no file, reads no clock, draws no random number: see ``events`` and ``commands``.
"""

"""A member of a coordinator's group, client side: a pure machine behind the same streams as a ZooKeeper member.

    runtime thread --event--> ConsumerCoordinator --commands--> network, timers, callbacks
                                  (pure)                              |
                   <-- response, disconnect, fired, callback done ----'

``events`` and ``commands`` are all that crosses the border of the machine; names of its methods are Kafka's own.
"""

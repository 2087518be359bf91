"""A member of a coordinator's group, client side: a pure machine behind the same streams as a ZooKeeper member.

    runtime thread --event--> ConsumerCoordinator --commands--> network, timers, callbacks
                                  (pure)                              |
                   <-- response, disconnect, fired, callback done ----'

``events`` and ``commands`` are all that crosses the border of the machine; names of its methods are Kafka's own.

    connector.py     CoordinatorConsumerConnector: what a program sees
    from_config.py   what the old configuration says of a member
    membership.py    machine, threads and whoever waits, put together
      runtime.py       the control thread: events in, commands out, the lease
      commit_calls.py  who waits for a commit
      network.py       the connection to the coordinator, and questions to any broker
      topics.py        which topics there are, for the machine
      handing.py       partitions taken up and handed back: drain, commit, listener, drop
      spread.py        a share, divided among streams
    assignors/       how a leader divides the group
"""

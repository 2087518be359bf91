"""The client side of a member of a coordinator group: a pure state machine, its threads, and its connections.

The streams and fetchers are the same as those of a member of a ZooKeeper group.

    control thread --event--> ConsumerCoordinator --commands--> network, timers, callbacks
                                   (pure)                              |
                    <-- response, disconnect, timer, callback done ----'

``events`` and ``commands`` are the complete interface of the machine; its methods have Kafka's own names.

    coordinator_connector.py     CoordinatorConsumerConnector: the API for a program
    coordinator_from_config.py   settings of a member from the old consumer's configuration
    coordinator_membership.py    connects the machine, the threads and the blocking calls
      coordinator_event_loop.py  the control thread: events in, commands out, the lease
      commit_calls.py            blocking commits
      network.py                 the connections to the coordinator, and requests to any broker
      group_topics.py            the topics and their partitions, for the machine
      assignment_executor.py     starts and releases partitions: drain, commit, listener, drop
      stream_assignor.py         divides the assignment among streams
    assignors/                   how a leader computes the assignment
"""

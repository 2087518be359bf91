"""The network layer of all clients of Kafka: connections, TLS, logins and requests as machines, and their IO.

    ConsumerNetworkClient    unsent requests by node, futures, wake-ups, two threads      consumer_network_client
      NetworkClient          the loop: executes commands, feeds events                    network_client
        NetworkMachine       every decision: connections, requests, time-outs; pure       network_machine
        Selector             non-blocking sockets                                         selector
          BrokerChannel      TLS, the login and frames of one connection; pure            broker_channel

``BlockingConnection`` (``broker_connection``) is the other driver of ``BrokerChannel``.
"""

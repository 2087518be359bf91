"""Where the bytes and layouts come from that our wire is compared with: Kafka's own classes, brokers and clients.

python -m tests.wire_oracles [RELEASE ...]     records them anew into tests/data/wire (needs Java, takes minutes)
"""

"""A data pipeline: reads a group with ``format("zkconsumer")``, decodes, transforms by SQL, writes one sink."""

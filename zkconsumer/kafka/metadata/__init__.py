"""What a client knows of the cluster: nodes, topics, leaders and their epochs."""

"""The metadata of the cluster as a client keeps it: nodes, topics, leaders and their epochs.  Pure.

DefaultMetadataUpdater         connects the metadata with the network machine
  Metadata                     when to update, what an update changes, errors
    ConsumerMetadata           which topics a consumer needs
    MetadataCache              the latest metadata of the topics
      Cluster                  the same for programs
"""

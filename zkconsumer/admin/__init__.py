"""The operations of the command line's tools on a group; a tool never becomes a member of it.

admin_session                a ZooKeeper session without ephemeral nodes, and connections to brokers on demand
broker_client                the leaders of partitions, and one negotiated connection for each broker
coordinator_client           requests to the coordinator of a group, with retries
coordinator_lookups          finds the coordinator of a group
stored_kafka_offsets         what Kafka has stored for the group, or why that is not known
zookeeper_group              a whole group as values: members, owners, offsets, fences
zookeeper_group_list         every group, one line each, in bounded memory
zookeeper_group_snapshot     one read of a group, of its log ends, and of its offsets in Kafka
coordinator_group_snapshot   groups of the coordinator, for the tools that show them
describe                     a group as rows
delete_zookeeper_group, delete_coordinator_group   delete groups without members
doctor/                      finds problems of a group
log_ranges                   the start and the end of logs, and offsets at a time
zookeeper_offset_writes      writes offsets in ZooKeeper under conditions
kafka_offsets                reads, commits and deletes offsets in Kafka's own store
group_offset_stores          both stores of one group: first read, then written
offset_files, offset_lines   files of offsets in three formats; pure
offset_plan, offset_targets  the changes to offsets, and the new offset of each partition; pure
"""

"""What the command line's tools do to a group, without being a member of it.

session      a ZooKeeper session that makes no ephemeral node, and connections to brokers when they are needed
brokers      who leads what, and one negotiated connection a broker
groups       a whole group as values: members, owners, offsets, fences
listing      every group, a line each, in bounded memory
look         one look: a group, its log ends, its offsets in Kafka
coordinators what Kafka has stored for a group
describe     a group as rows
delete       away with groups that nobody is in
doctor/      what is wrong with a group
log_ranges   where logs begin, end, and reach a time
stores       offsets in ZooKeeper, written under conditions
kafka_offsets  offsets in Kafka's own store, read, committed, deleted
group_stores   both stores of one group: looked at once, then written
offset_files, offset_lines       files of offsets in three formats; pure
offset_plan, offset_targets      what is to be done to offsets, and where each is to stand; pure
"""

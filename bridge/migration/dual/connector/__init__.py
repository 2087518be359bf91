"""A member that migrates without a stop: ``MigratingConsumerConnector`` and its parts.

migrating_connector.py          the public class, and the check of its settings
migrating_membership.py         the two memberships around the state machine (``bridge.migration.dual.machine``)
coordinator_side.py             the membership at the coordinator, with what a migration needs of it besides
coordinator_side_lifecycle.py   when that membership is opened, changed and closed
side_processors.py              what each membership sees as its processor, and the processor as its event loop
migrating_commits.py            commits of the program: to which stores, and in which order
committed_offset_reader.py      fetches committed offsets until they are known
urgent_writes.py                repeats commits while the group rebalances
side_leases.py                  the lease that the streams see is that of the active side
active_side_filters.py          the hooks, listener calls and metrics of the passive side are silent
member_znodes.py                writes the acknowledgement and the mirrored offsets, by ``member_procedures.py``
migration_assignor.py           the protocol that keeps stock clients out          pure
protocol_downgrade.py           from that protocol to ``range`` without a stop     pure
"""

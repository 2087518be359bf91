"""The command's side of a ``dual`` migration: the members migrate while they run, and the command advances the phases.

    dual_strategy         the way forward: when each phase begins
    dual_rollback         the ways back
    participants          the registered members, their acknowledgements, the coordinator group; what a phase waits for
    member_steps          the steps that wait for members: acknowledgements, ownership of every partition
    store_comparison      compares both stores by value while members commit
    orphaned_partitions   the offsets that no member migrates: of unread partitions, and missing ones

The command writes the control znode, the fences of unowned partitions, and the offsets of ``orphaned_partitions``;
never the offset of a partition that a member owns.  The member's side is ``bridge.migration.dual.machine``.
"""

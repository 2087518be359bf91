"""Blocks old members, and removes the blocks again; each is a step, and each has a step that undoes it.

owner_fences.py         a persistent owner node for every partition; ``RemoveOwnerFences`` deletes them
post_switch_fences.py   the same for ``dual``, after the members have released their ownership
fence_acl_steps.py      access lists that block even a member after a long pause; ``RestoreAcls`` undoes them
inherited_fences.py     fences of a completed migration, which the next one takes over
fence_checks.py         no old member is left; all fences exist
rebalance_trigger.py    triggers a rebalance of members that gave up at a fence, and checks that they read again
fence_record.py         the data of a fence    fence_acls.py  which lists are a fence
fence_permissions.py    who may change them    fence_acl_rules.py  the list of a new node, from the lists of before
"""

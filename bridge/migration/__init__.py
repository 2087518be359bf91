"""Moves a live group from ZooKeeper to the group coordinator, and back.

The operator makes a plan, checks it, and applies it.  After an interruption the operator applies it again.

    inspect --> GroupSnapshot --plan--> MigrationPlan --steps--> MigrationStep, ... --StepExecutor--> both stores

    inspect      reads a group from both stores; the status of a migration
    plan         the operator's decisions, the start offset of each partition, the plan file, its differences (drift)
    control      the control znode with its phases, its access lists, its journal, and the lock of a run
    steps        the idempotent steps, their execution or dry run; ``copy``, ``rollback``, ``complete``
    fences       owner nodes and access lists that block old members
    placeholder  the member of the coordinator group that blocks other clients while offsets are copied
    offsets      copies offsets between the stores, and compares them
    dual         members that migrate without a stop: ``machine`` decides, ``connector`` executes
    errors       what ends a command, with its exit code

The order rule, for every step: *before the authority moves from A to B, B equals A for every partition, and every
ownership is fenced at the new epoch.*  A step checks the current state, not a record of intentions.  So the recovery
from every failure is to run ``apply`` again.
"""

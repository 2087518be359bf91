"""Reads offsets into the tables of a pipeline beside its live query, without a membership in the group.

backfill_bounds   what --from and --to say, and the id that each repetition of a command has
live_query        which offsets the live query has yet to read
backfill_plan     which batches are reserved, and which of them are left
backfill_run      reserves the batches, and writes one after the other
"""

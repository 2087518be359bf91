"""What a group member is: pure state machines.  No IO, no threads, no clock.

Each machine takes one *event* (past tense) and gives back *commands* (imperative).  ``group`` composes them and
is the only door from outside.
"""

"""Runs a member: one control thread handles events and timers, and executes the commands of ``member``."""

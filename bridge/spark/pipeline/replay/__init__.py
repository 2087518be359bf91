"""Reads dead letters again, through a corrected pipeline.

letter_choice        which dead letters have no row yet
dead_letter_reader   their places and records in the table of dead letters
replay_run           decodes them, writes those that are good now, and leaves the others
"""

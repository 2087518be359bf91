"""The tables of settings, one module for each subject; ``zkconsumer.config`` combines them.  Pure.

A table is a ``SettingsTable`` whose attributes are its settings, in the order of the reference page.  ``ORIGIN``: the
program that has these keys; ``conflicts``: the checks of combinations.
"""

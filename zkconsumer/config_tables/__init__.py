"""The settings, in tables: one module a subject, gathered by ``zkconsumer.config``.  Pure.

Each table is a ``SettingsTable`` whose attributes are its settings, in the order of the reference page; ``ORIGIN`` says
whose keys they are, and ``conflicts`` what cannot be set together.
"""

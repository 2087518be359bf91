"""The commands ``zkconsumer migrate``, ``spark`` and ``broker``; ``setup.py`` registers them as entry points.

``zkconsumer --help`` imports each of them, so their modules import large packages only when a command runs.
"""

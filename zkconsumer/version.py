"""The version of this package: the one place that says it.  Pure; ``setup.py`` reads this file."""

__version__ = "0.1.0"

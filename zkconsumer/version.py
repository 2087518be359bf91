"""The version of this package.  Pure; ``setup.py`` reads this file."""

__version__ = "0.1.0"

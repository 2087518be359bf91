"""The command line: the only place that prints."""

from zkconsumer.cli.main import main

__all__ = ["main"]

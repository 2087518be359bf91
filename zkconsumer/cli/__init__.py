"""The command line: the only package that prints."""

try:
    from zkconsumer.cli.main import main
except KeyboardInterrupt:
    # A Ctrl-C while modules are loaded must not print a traceback of the import.
    import sys

    sys.stderr.write("zkconsumer: interrupted\n")
    sys.exit(130)

__all__ = ["main"]

"""The command line: the only place that prints."""

try:
    from zkconsumer.cli.main import main
except KeyboardInterrupt:
    # Whoever presses Ctrl-C while modules are loaded shall not read in which one.
    import sys

    sys.stderr.write("zkconsumer: interrupted\n")
    sys.exit(130)

__all__ = ["main"]

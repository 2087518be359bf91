"""``zkconsumer contexts``: lists the named clusters, and which one the environment selects."""

from __future__ import annotations

import click

from zkconsumer.cli.common import print_json, print_table
from zkconsumer.cli.console import print_message
from zkconsumer.cli.contexts import CONTEXT_VARIABLE, EXAMPLE, contexts_path, find_context, read_contexts
from zkconsumer.cli.options import OutputFormat, from_environment, output_option

SCHEMA = "zkconsumer/contexts/1"


@click.command(
    epilog="Exit codes: 0 done, 2 the file is not valid, or the environment names a context that it does not have."
)
@output_option
def contexts(output: OutputFormat) -> None:
    """List the clusters that --context can name.

    They are in zkconsumer/config.toml below $XDG_CONFIG_HOME or ~/.config. The one that $ZKCONSUMER_CONTEXT names has
    a star.
    """
    path = contexts_path()
    selected = from_environment(CONTEXT_VARIABLE)
    if selected is not None:
        find_context(selected, path)
    found = read_contexts(path).values()
    if output == "json":
        print_json({
            "schema": SCHEMA, "file": str(path), "selected": selected,
            "contexts": [
                {"name": each.name, "zookeeper": each.zookeeper, "bootstrap_server": each.bootstrap_servers,
                 "config": None if each.config_file is None else str(each.config_file)}
                for each in found
            ],
        })  # fmt: skip
    elif found:
        print_table(
            ("SELECTED", "CONTEXT", "ZOOKEEPER", "BOOTSTRAP-SERVER", "CONFIG"),
            [
                ("*" if each.name == selected else None, each.name, each.zookeeper, each.bootstrap_servers,
                 each.config_file)
                for each in found
            ],
            ("CONFIG",),
        )  # fmt: skip
    else:
        print_message(f"There is no context. Write into {path}: {EXAMPLE}")

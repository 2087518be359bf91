"""The page ``migration_docs/reference/pipeline-file.md``, from the table of the keys of a pipeline file.  Pure."""

from __future__ import annotations

from bridge.spark.pipeline.pipeline_key import PipelineKey
from bridge.spark.pipeline.pipeline_keys import SECTIONS, keys_of

_PAGE = """\
# The keys of a pipeline file

<!-- Generated: python tests/generate_docs.py --write -->

Every key of the TOML file that `zkconsumer pipeline` reads: its values, its default, and when it is needed.
[Load a group into Parquet files, Delta tables or PostgreSQL](../how-to/load-a-group-into-tables.md) shows a whole file;
`zkconsumer pipeline init` writes one.

A dotted name is one key: `zookeeper.connect = "zk1:2181"` and `"zookeeper.connect" = "zk1:2181"` are the same. Relative
paths begin in the folder of the file. Secrets are places, never the secrets: `"env:NAME"` or `"file:PATH"`. A key that
is not known is an error that names the nearest one.

{sections}
"""

_OPTIONS_PAGE = (
    'Further keys: every option for streams of [format("zkconsumer")](spark-options.md), under its own name.'
)

_HADOOP_PAGE = (
    "Names are not checked. A name that contains `secret`, `password`, `token`, `access.key`, `account.key`, "
    "`private.key` or `encryption.key` takes only `env:NAME` or `file:PATH`, unless its end says that the value is a "
    "class, a path or a switch; any other name takes a text, or `env:NAME`. Write the names in quotes."
)


def render() -> str:
    """The text of the page."""
    return _PAGE.format(sections="\n".join(_section(name, about) for name, about in SECTIONS.items()))


def _section(name: str, about: str) -> str:
    keys = [key for key in keys_of(name) if key.is_in_template or name != "source"]
    if not keys:  # names of another program
        return f"## [{name}]\n\n{about} {_HADOOP_PAGE}\n"
    lines = [f"## [{name}]", "", about, "", "| key | value | default | meaning |", "|---|---|---|---|"]
    lines += [_row(key) for key in keys]
    if name == "source":
        lines += ["", _OPTIONS_PAGE]
    return "\n".join(lines) + "\n"


def _row(key: PipelineKey) -> str:
    default = f"`{key.default_text}`" if key.default_text else "none"
    meaning = " ".join(part for part in (key.meaning, key.rules) if part).replace("](#", "](spark-options.md#")
    cells = [f"`{key.name}`", key.allowed, default, meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

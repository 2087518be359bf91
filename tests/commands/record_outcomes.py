"""Records how every command ends in every situation: ``python -m tests.commands.record_outcomes``.

``tests/data/command-outcomes.json`` is what ``test_outcomes`` compares with, and what the reference page is made of.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.commands.command_matrix import COMMANDS, cells, kept
from tests.commands.in_memory_cluster import command_world

FILE = Path(__file__).resolve().parent.parent / "data" / "command-outcomes.json"


def main() -> None:
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder, command_world(Path(folder)) as world:
        world.read_to_the_end()
        for name, situation in cells():
            command = COMMANDS[name]
            document = command.call(world, situation, as_json=True) if command.is_json else None
            found.setdefault(name, {})[situation] = kept(command.call(world, situation), document)
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

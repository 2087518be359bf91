"""Records anew: see the package."""

from __future__ import annotations

import sys

from tests.wire_oracles import compressed, frames, layouts, traffic


def main() -> None:
    releases = sys.argv[1:]
    for release in layouts.RELEASES:
        if not releases or release in releases:
            layouts.recorded_of(release).write_text(layouts.printed_by_java(release))
    for pair in traffic.named(releases):
        recorded = traffic.record(pair)
        kept = frames.examples(recorded)
        frames.write(pair.path, kept, f"client {pair.client or 'ours'}, broker {pair.broker}")
        print(f"{pair}: {len(recorded.frames)} frames, {len(recorded.records)} records; kept {len(kept.frames)}")
    for release in compressed.CODECS:
        if not releases or release in releases:
            made = compressed.record(release)
            compressed.write(release, made)
            print(f"broker {release}: {len(made)} compressed record sets")


main()

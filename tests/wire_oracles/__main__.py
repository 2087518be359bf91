"""Records anew: see the package."""

from __future__ import annotations

import sys

from tests.wire_oracles import layouts, recorded_frames, recorded_record_sets, traffic


def main() -> None:
    releases = sys.argv[1:]
    for release in layouts.RELEASES:
        if not releases or release in releases:
            layouts.recorded_of(release).write_text(layouts.printed_by_java(release))
    for pair in traffic.named(releases):
        recorded = traffic.record(pair)
        kept = recorded_frames.examples(recorded)
        recorded_frames.write(pair.path, kept, f"client {pair.client or 'ours'}, broker {pair.broker}")
        print(f"{pair}: {len(recorded.frames)} frames, {len(recorded.records)} records; kept {len(kept.frames)}")
    for release in recorded_record_sets.CODECS:
        if not releases or release in releases:
            made = recorded_record_sets.record(release)
            recorded_record_sets.write(release, made)
            print(f"broker {release}: {len(made)} compressed record sets")


main()

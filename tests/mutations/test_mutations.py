"""Each row removes one safety rule from a copy of the source tree.  The test that the row names must fail there.

A rule that no test pins can be lost in any later change, so a row is added for each rule whose loss would lose,
repeat or overwrite records without a visible error.  ``test_mutations`` checks two things: the source text of the row
still exists exactly once (a change of the code must change the row, too), and the named test fails in the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("bridge", "zkconsumer", "pyspark_zkconsumer", "tests", "migration_docs", "pyproject.toml", "setup.py")
TESTS_FAILED = 1
"""The exit code of pytest for failed tests; 2 to 5 mean that it could not run or find them."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces ``rule`` by ``without`` in ``file``; ``test`` is the pytest id (a file, or one test) that fails then."""

    name: str
    file: str
    rule: str
    without: str
    test: str


MUTATIONS = [
    Mutation(
        "an owner node of our session counts as ours at any data version",
        "zkconsumer/zk/conditional_writes.py",
        "if owner.stat.ephemeral_owner != self._session_id or owner.stat.version != OUR_OWNER_VERSION:",
        "if owner.stat.ephemeral_owner != self._session_id:",
        "tests/unit/zk/test_conditional_writes.py::test_an_owner_node_of_our_session_that_was_set_again_is_not_ours",
    ),
    Mutation(
        "a commit accepts any data version of the owner node",
        "zkconsumer/zk/conditional_writes.py",
        "return [CheckOp(owner, OUR_OWNER_VERSION), *ops]",
        "return [CheckOp(owner, -1), *ops]",
        "tests/unit/zk/test_conditional_writes.py::test_an_owner_node_that_an_original_member_made_is_never_taken_for_ours",
    ),
    Mutation(
        "a release deletes an owner node at any data version",
        "zkconsumer/zk/conditional_writes.py",
        "ops.append(DeleteOp(owner, OUR_OWNER_VERSION))",
        "ops.append(DeleteOp(owner, -1))",
        "tests/unit/zk/test_conditional_writes.py::test_a_release_looks_at_sessions_when_its_multi_fails",
    ),
    Mutation(
        "a phase is written over a control znode that changed",
        "bridge/migration/control/control_znode.py",
        "SetData(path, format_control(control), held.version)",
        "SetData(path, format_control(control), -1)",
        "tests/migration/test_authority_steps.py::"
        "test_a_phase_is_not_written_over_a_control_znode_that_changed_after_it_was_read",
    ),
    Mutation(
        "a write of a run is sent in any session",
        "bridge/migration/control/control_znode.py",
        "answers = self.session.request(requests, self._lock_session_id)",
        "answers = self.session.request(requests)",
        "tests/migration/test_authority_steps.py::test_a_write_of_a_run_whose_session_has_ended_is_never_made",
    ),
    Mutation(
        "a copy trusts what was read in an older generation",
        "bridge/migration/offsets/offset_copy_steps.py",
        "looked is None or looked[:2] != (placeholder.joined.generation, epoch)",
        "looked is None or looked[1] != epoch",
        "tests/migration/test_offset_copy_steps.py::test_offsets_read_in_an_older_generation_are_read_again_before_the_commit",
    ),
    Mutation(
        "offsets that Kafka refused are written to ZooKeeper by a member that migrates",
        "bridge/migration/dual/connector/migrating_commits.py",
        "for tp, at in ours.items() if tp not in refused and tp in call.owned}",
        "for tp, at in ours.items() if tp in call.owned}",
        "tests/migration/test_migrating_commits.py::test_offsets_that_kafka_rejects_are_not_written_to_zookeeper_where_kafka_is_first",
    ),
    Mutation(
        "offsets of lost partitions are committed to Kafka",
        "bridge/migration/dual/connector/migrating_commits.py",
        "ours = {tp: at for tp, at in call.positions.items() if tp in call.running}",
        "ours = dict(call.positions)",
        "tests/migration/test_migrating_commits.py::test_a_lost_partition_is_committed_to_neither_store",
    ),
    Mutation(
        "the answer of a cancelled job is delivered",
        "zkconsumer/kafka/offsets_channel.py",
        "if tell is not None and not job.is_cancelled:",
        "if tell is not None:",
        "tests/unit/kafka/test_offsets_channel.py::"
        "test_the_answer_of_a_job_that_is_cancelled_when_it_has_come_is_told_to_nobody",
    ),
    Mutation(
        "a record set that ends at the fetch offset counts as progress",
        "zkconsumer/kafka/fetcher_thread.py",
        "if found.entries and found.next_offset <= offset:",
        "if found.entries and found.next_offset < offset:",
        "tests/unit/kafka/test_fetcher.py::test_an_answer_that_brings_no_progress_is_reported_and_asked_for_again",
    ),
    Mutation(
        "an answer for an older fetch offset is taken",
        "zkconsumer/kafka/fetcher_thread.py",
        "if info.fetch_offset != reading.asked_offset:",
        "if False:",
        "tests/unit/kafka/test_fetcher.py::test_an_answer_for_an_offset_that_was_left_meanwhile_is_dropped",
    ),
    Mutation(
        "the iterating thread reads is_live before it writes unacknowledged_offset",
        "zkconsumer/base/delivery_state.py",
        "        self.unacknowledged_offset = offset\n        if self.is_live:\n            return True\n",
        "        is_live = self.is_live\n        self.unacknowledged_offset = offset\n"
        "        if is_live:\n            return True\n",
        "tests/unit/kafka/test_partition_stop_interleavings.py::test_in_every_interleaving_a_stop_learns_of_the_record_that_was_handed_out",
    ),
    Mutation(
        "stop reads unacknowledged_offset before it writes is_live",
        "zkconsumer/kafka/chunks.py",
        "        self.is_live = False\n        self.unread_chunks = self.queue.remove_chunks_of(self)\n"
        "        if self.unacknowledged_offset == NO_UNACKNOWLEDGED_OFFSET:\n",
        "        unacknowledged_offset = self.unacknowledged_offset\n        self.is_live = False\n"
        "        self.unread_chunks = self.queue.remove_chunks_of(self)\n"
        "        if unacknowledged_offset == NO_UNACKNOWLEDGED_OFFSET:\n",
        "tests/unit/kafka/test_partition_stop_interleavings.py::test_in_every_interleaving_a_stop_learns_of_the_record_that_was_handed_out",
    ),
    Mutation(
        "the compiled hand-out reads is_live before it writes unacknowledged_offset",
        "zkconsumer/base/_delivery.c",
        "    atomic_store(&self->unacknowledged_offset, offset);\n    step(self->state);\n"
        "    bool is_live = atomic_load(&self->is_live);\n",
        "    bool is_live = atomic_load(&self->is_live);\n    step(self->state);\n"
        "    atomic_store(&self->unacknowledged_offset, offset);\n",
        "tests/unit/kafka/test_partition_stop_interleavings.py::"
        "test_in_every_interleaving_a_stop_learns_of_the_record_that_the_compiled_hand_out_gave",
    ),
    Mutation(
        "the compiled hand-out gives a record whatever is_live says",
        "zkconsumer/base/_delivery.c",
        "    if (is_live) return 1;\n",
        "    if (is_live || offset >= 0) return 1;\n",
        "tests/unit/kafka/test_partition_stop_interleavings.py::"
        "test_in_every_interleaving_a_stop_learns_of_the_record_that_the_compiled_hand_out_gave",
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[row.name for row in MUTATIONS])
def test_the_rule_of_each_mutation_is_in_the_source_exactly_once(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.rule) == 1
    assert (ROOT / mutation.test.partition("::")[0]).is_file()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[row.name for row in MUTATIONS])
def test_the_named_test_fails_without_the_rule(mutation: Mutation, tmp_path: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, tmp_path / name)
    mutated = tmp_path / mutation.file
    mutated.write_text(mutated.read_text(encoding="utf-8").replace(mutation.rule, mutation.without), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutation.test]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == TESTS_FAILED, f"{mutation.test} passes without the rule:\n{done.stdout}{done.stderr}"
    assert f"FAILED {mutation.test.partition('[')[0]}" in done.stdout

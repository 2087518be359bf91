"""The checker of citations: rows that were wrong once are found, and rows that are right pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_citations import Citation, Row, ported_problems, snake_case, uses_of
from zkconsumer.config import SETTINGS

KEYS = frozenset(SETTINGS)
FETCHER = "tests/unit/kafka/test_fetcher.py"
THREAD = "`{}` in `zkconsumer/kafka/fetcher_thread.py`"
MADE = ", on a thread of `ConsumerFetcherManager` (`zkconsumer/kafka/fetcher_manager.py`)"


def problems(subject: str, here: str, *tests: str) -> list[str]:
    settings = KEYS | ({subject} if subject.startswith(("kafka.", "mirror.")) else set())
    return list(Row(f"`{subject}`", here, " ".join(f"`{test}`" for test in tests), settings).problems())


FORMER = {
    "TopicCount.getTopicCountMap": (
        "`get_topic_count_map` in `zkconsumer/member/topic_count.py`",
        "tests/unit/zk/test_znodes_registration.py",
    ),
    "TopicCount.pattern": (
        "`pattern` in `zkconsumer/member/topic_count.py`",
        "tests/unit/zk/test_znodes_registration.py",
    ),
    "TopicCount.constructTopicCount": (
        "`construct_topic_count` in `zkconsumer/member/topic_count.py`, from what `parse_registration` in "
        "`zkconsumer/zk/member_registration.py` accepts",
        "tests/unit/zk/test_znodes_registration.py",
    ),
    "ZookeeperConsumerConnector.autoCommit": (
        "`_auto_commit` in `zkconsumer/member/member_state_machine.py`",
        "tests/unit/test_streams.py::test_consumed_moves_when_the_program_comes_back_for_more",
    ),
    "ConsumerFetcherManager.LeaderFinderThread": (
        "`_find_leaders` in `zkconsumer/kafka/fetcher_manager.py`; with `bootstrap.servers` none need be in ZooKeeper",
        f"{FETCHER}::test_one_broker_that_answers_is_enough_to_find_the_leaders",
    ),
    "ConsumerFetcherThread.fetch": (THREAD.format("_send_fetch"), "tests/unit/kafka/test_version_negotiation.py"),
    "zookeeper.connection.timeout.ms": (
        "`zookeeper_connection_timeout_ms` in `zkconsumer/config_tables/scala_consumer.py`",
        "tests/unit/test_connector.py::test_zookeeper_that_is_down_is_one_clear_error_and_leaves_no_thread",
    ),
    "socket.receive.buffer.bytes": (
        "`socket_receive_buffer_bytes` in `zkconsumer/config_tables/scala_consumer.py`",
        "tests/unit/kafka/test_connection.py",
    ),
    "fetch.message.max.bytes": ("`fetch_message_max_bytes` in `zkconsumer/config_tables/scala_consumer.py`", FETCHER),
    "fetch.max.bytes": (
        "`fetch_max_bytes` in `zkconsumer/config_tables/scala_consumer.py`",
        f"{FETCHER}::test_a_broker_without_a_total_limit_is_asked_for_so_many_partitions_that_fetch_max_bytes_is_kept",
    ),
    "fetch.min.bytes": ("`fetch_min_bytes` in `zkconsumer/config_tables/scala_consumer.py`", FETCHER),
    "fetch.wait.max.ms": ("`fetch_wait_max_ms` in `zkconsumer/config_tables/scala_consumer.py`", FETCHER),
    "kafka.metrics.polling.interval.secs": (
        "set aside by `zkconsumer/other_client_keys.py`",
        "tests/unit/test_config.py::test_keys_of_other_programs_are_set_aside_and_named",
    ),
    "mirror.consumer.numthreads": (
        "set aside by `zkconsumer/other_client_keys.py`",
        "tests/unit/test_config.py::test_keys_of_other_programs_are_set_aside_and_named",
    ),
}
"""Rows that the parity page had: their tests exist and show something else."""


@pytest.mark.parametrize("subject", FORMER)
def test_a_row_whose_test_shows_something_else_is_found(subject: str) -> None:
    here, test = FORMER[subject]
    assert any(problem.startswith("no cited test uses ") for problem in problems(subject, here, test))


RIGHT = {
    "a name": ("`get_topic_count_map` in `zkconsumer/member/topic_count.py`", "tests/unit/member/test_topic_count.py"),
    "a name of the Java API": (
        "`create_message_streams` in `zkconsumer/connector_base.py`",
        "tests/unit/test_javaapi.py",
    ),
    "a private name, by what uses it": (
        THREAD.format("_send_fetch") + MADE,
        f"{FETCHER}::test_a_leader_that_moves_is_found_again",
    ),
    "what a connector is made of": (
        "`_auto_commit` in `zkconsumer/member/member_state_machine.py`",
        "tests/unit/test_connector.py::test_a_message_in_hand_is_not_committed_by_itself",
    ),
    "a program": (
        "`MemberStateMachine` in `zkconsumer/member/member_state_machine.py`",
        "tests/real/test_mixed_groups.py",
    ),
    "a transcript": (
        "`MemberStateMachine` in `zkconsumer/member/member_state_machine.py`",
        "tests/transcripts/a_member_leaves_cleanly.txt",
    ),
    "a command": ("`zkconsumer log-ends`", "tests/unit/cli/test_cli_log_ends.py"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_row_whose_test_uses_its_name_passes(case: str) -> None:
    subject = "ConsumerConnector.createMessageStreams" if "Java" in case else "A.b"
    assert problems(subject, *RIGHT[case]) == []


@pytest.mark.parametrize(
    ("here", "test", "problem"),
    [
        (THREAD.format("_send_fetch"), f"{FETCHER}::test_that_is_not_there", "is not there"),
        (THREAD.format("_send_fetch"), "tests/unit/test_that_is_not_there.py", "is not there"),
        ("gone", f"{FETCHER}::test_a_leader_that_moves_is_found_again", "uses none of no names"),
        (
            "`commit_partitions` in `zkconsumer/zk/conditional_writes.py`",
            "tests/transcripts/a_member_leaves_cleanly.txt",
            "uses none of commit_partitions",
        ),
        ("`zkconsumer log-ends`", "tests/unit/cli/test_cli_offsets.py", "uses none of zkconsumer log-ends"),
    ],
)
def test_a_citation_that_cannot_show_the_row_is_found(here: str, test: str, problem: str) -> None:
    assert any(each.endswith(problem) for each in problems("A.b", here, test))


def test_every_name_of_a_row_must_be_used_and_every_test_must_use_one() -> None:
    here = (
        "`get_topic_count_map` in `zkconsumer/member/topic_count.py`, `BootstrapClient` in "
        "`zkconsumer/kafka/bootstrap_client.py`"
    )
    assert problems("A.b", here, "tests/unit/member/test_topic_count.py") == ["no cited test uses BootstrapClient"]
    both = problems("A.b", here, "tests/unit/member/test_topic_count.py", FETCHER, "tests/unit/zk/test_zk_paths.py")
    assert both == ["tests/unit/zk/test_zk_paths.py uses none of get_topic_count_map, BootstrapClient"]


def test_a_setting_is_used_by_the_module_of_the_test_itself() -> None:
    """A connector of a shared helper has every setting that the helper gives it, whatever the test is about."""
    here = "`fetch_wait_max_ms` in `zkconsumer/config_tables/scala_consumer.py`"
    assert problems("fetch.wait.max.ms", here, "tests/unit/test_connector.py::test_basic_b_to_e")
    assert not problems("fetch.wait.max.ms", here, "tests/unit/test_settings_act.py::test_a_fetch_asks_for_what_is_set")


def test_a_transcript_uses_a_setting_that_it_sets_or_whose_timer_it_shows() -> None:
    transcript = "tests/transcripts/defect_01_a_member_retries_until_it_owns_its_assignment.txt"
    here = "`rebalance_backoff_ms` in `zkconsumer/config_tables/scala_consumer.py`"
    assert problems("rebalance.backoff.ms", here, transcript) == []
    assert problems("auto.commit.interval.ms", here, transcript) != []


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "test_module.py"
    path.write_text(
        '"""docstring_word"""\n'
        "import pytest\n"
        "VALUE = named_by_value()\n"
        "@pytest.fixture\n"
        "def fixture(): return made_by_fixture(1)\n"
        "def helper(): other_helper()\n"
        "def other_helper(): deep(keyword=1)\n"
        "def unused(): never()\n"
        "def test_it(fixture):\n"
        "    '''another_docstring'''\n"
        "    helper()  # comment_word\n"
        "    assert VALUE.attribute == 'a text with fetch.min.bytes' and 'patched_name'\n"
    )
    return path


def test_helpers_fixtures_and_values_of_the_module_count_and_docstrings_and_comments_do_not(module: Path) -> None:
    used = uses_of(module, "test_it", beyond=False)
    assert {"made_by_fixture", "named_by_value", "deep", "keyword", "attribute", "patched_name"} <= used.names
    assert "fetch.min.bytes" in used.words
    assert not {"never", "docstring_word", "another_docstring", "comment_word"} & (used.names | used.words)
    assert "never" in uses_of(module, "", beyond=False).names


def test_a_name_that_several_files_define_needs_something_of_the_files_of_its_row() -> None:
    assert problems("A.b", "`close` in `zkconsumer/zk/topic_watcher.py`", FETCHER) != []
    assert (
        problems("A.b", "`shutdown` in `zkconsumer/zk/topic_watcher.py`", "tests/unit/zk/test_topic_watcher.py") == []
    )


def test_a_row_of_sentences_needs_tests_that_use_its_files_and_its_settings() -> None:
    def prose(here: str, test: str) -> list[str]:
        return list(Row("", here, f"`{test}`", KEYS).problems_of_prose())

    subscription = "tests/unit/member/test_topic_count.py"
    assert prose("`zkconsumer/member/topic_count.py`", subscription) == []
    assert prose("`zkconsumer/kafka/bootstrap_client.py`", subscription) == [
        f"{subscription} uses nothing of zkconsumer/kafka/bootstrap_client.py"
    ]
    assert prose("waits `release.settle.ms`: `zkconsumer/member/topic_count.py`", subscription) == [
        "no cited test uses release.settle.ms"
    ]
    transcript = "tests/transcripts/a_member_leaves_cleanly.txt"
    assert prose("`zkconsumer/zk/conditional_writes.py`", transcript) == [
        f"{transcript} uses nothing of zkconsumer/zk/conditional_writes.py"
    ]
    assert prose("`zkconsumer/member/partition_releaser.py`", transcript) == []


@pytest.mark.parametrize(
    ("original", "test", "is_right"),
    [
        ("AbstractFetcherThreadTest", FETCHER, False),
        ("AbstractFetcherThreadTest", f"{FETCHER}::test_a_leader_that_moves_is_found_again", False),
        ("AbstractFetcherThreadTest", f"{FETCHER}::test_the_metrics_of_a_broker_go_with_its_last_fetcher_thread", True),
        ("MetricsTest.testMetricsLeak", "tests/unit/runtime/test_metrics.py::test_metrics_leak", True),
        ("MetricsTest.testMetricsLeak", "tests/unit/test_many_connectors.py", True),
        ("MetricsTest.testMetricsLeak", f"{FETCHER}::test_that_is_not_there", False),
    ],
)
def test_a_ported_test_names_the_test_that_it_ports(original: str, test: str, is_right: bool) -> None:
    assert (list(ported_problems(original, f"`{test}`")) == []) == is_right


@pytest.mark.parametrize(
    ("java", "python"),
    [("testBasic", "test_basic"), ("testMetricsLeak", "test_metrics_leak"), ("testIOError", "test_io_error")],
)
def test_names_of_java_as_they_are_written_here(java: str, python: str) -> None:
    assert snake_case(java) == python


def test_a_citation_is_a_test_a_module_or_a_transcript() -> None:
    assert Citation(FETCHER).exists
    assert not Citation("tests/unit").exists
    assert Citation("tests/transcripts/a_member_leaves_cleanly.txt").is_transcript

"""``FetchConfig``: the settings of ``Fetcher``, as the constructor of Kafka 3.0's ``Fetcher`` has them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.wire.isolation_level import IsolationLevel


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """The keys are those of the consumer; sizes in bytes, times in ms.

    ``min_bytes``, ``max_bytes``, ``max_wait_ms``: fetch.min.bytes, fetch.max.bytes, fetch.max.wait.ms.  ``fetch_size``:
    max.partition.fetch.bytes.  ``max_poll_records``: max.poll.records.  ``check_crcs``: check.crcs.
    ``client_rack_id``: client.rack, empty for none.  ``retry_backoff_ms``, ``request_timeout_ms``: retry.backoff.ms,
    request.timeout.ms.
    """

    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_wait_ms: int = 500
    fetch_size: int = 1024 * 1024
    max_poll_records: int = 500
    check_crcs: bool = True
    client_rack_id: str = ""
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        assert self.max_poll_records > 0, "max.poll.records is at least 1"

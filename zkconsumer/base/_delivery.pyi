"""The compiled hand-out (``_delivery.c``).  Internal: ``zkconsumer.kafka.table_delivery`` uses it."""

from collections.abc import Callable
from typing import Any

from zkconsumer.base.delivery_state import LeaseState, OwnershipState, QueueState

class MessageAndMetadata:
    """See ``zkconsumer.streams.MessageAndMetadata``."""

class Delivery:
    def __init__(
        self,
        queue: QueueState,
        lease: LeaseState,
        key_decoder: Callable[[bytes], Any] | None,
        value_decoder: Callable[[bytes], Any] | None,
    ) -> None: ...
    is_failed: bool
    @property
    def delivered(self) -> tuple[Any, int, int] | None:
        """The ownership, the offset behind the records that the program has, and the number of resets; None: none."""
    @property
    def deliveries(self) -> int:
        """How many times records were delivered."""
    @property
    def rows_delivered(self) -> int:
        """Of the table that is loaded."""
    @property
    def is_ready(self) -> bool:
        """Whether the table has a record that may be handed out, as far as the partition is concerned."""
    @property
    def inside(self) -> int:
        """The number of the thread whose call is running; 0: none is."""
    @property
    def thread_id(self) -> int:
        """The number of the thread that called last; 0: none has."""
    @property
    def delivered_at_ms(self) -> int | None:
        """When the last record was handed out, in ms of the lease's clock; None: none was."""
    def load(
        self,
        ownership: OwnershipState,
        resets: int,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        rows: bytes | bytearray | memoryview,
        count: int,
    ) -> None:
        """Hand out the rows of this table next.  ``ValueError`` for a row whose fields lie outside of ``data``."""
    def unload(self) -> None:
        """Let the table go; the records that were delivered stay delivered."""
    def acknowledge(self) -> None:
        """Count the records in hand as consumed."""
    def undeliver(self) -> None:
        """Count the records in hand as not consumed; the next call gives them again, if the partition is still ours."""
    def acknowledge_through(self, delivery: int, offset: int) -> None:
        """The program is done with the records of this delivery up to this offset."""
    def take(self, wrap: Callable[[Any], Any] | None) -> Any:
        """The next message, or what ``wrap`` makes of it."""
    def peek(self, with_message: bool) -> Any:
        """The message that ``take`` would give (True, unless it is wanted); None: the stream has ended."""

class Iterator:
    def __new__(cls, delivery: Delivery, wrap: Callable[[Any], Any] | None) -> Any: ...
    def __iter__(self) -> Any: ...
    def __next__(self) -> Any: ...

class BatchIterator:
    """``make(data, rows, how many, topic, partition, number of the delivery)`` makes each batch."""

    def __new__(cls, delivery: Delivery, max_rows: int, max_bytes: int, make: Callable[..., Any]) -> Any: ...
    def __iter__(self) -> Any: ...
    def __next__(self) -> Any: ...

def calling_thread() -> int:
    """A number for the calling thread that no other thread of this process ever has."""

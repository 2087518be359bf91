"""Every error that this package raises to the program.  Pure.

The base class shows who must act:

    UsageError        you: the call, the configuration or the command line is wrong
    PeerError         another member or a broker sent invalid data
    UnavailableError  a server is down or unreachable
    MigrationError    the authority of the group is not ZooKeeper
    InternalError     us: please report it with the history that it contains

The class docstring explains the error; the instance has the details.  Errors of the Scala consumer
(``ConsumerTimeoutException`` and others) keep their names, so that old ``except`` clauses work; each of them has one of
these base classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.types import TopicPartition


class ZkConsumerError(Exception):
    """The base of every error of this package."""

    exit_code: ClassVar[int] = 1
    """The exit code of the command line after this error."""


class UsageError(ZkConsumerError):
    """The call, the configuration or the command line is wrong; the text explains what to change."""

    exit_code = 2


class PeerError(ZkConsumerError):
    """Another member or a broker sent invalid data."""


class UnavailableError(ZkConsumerError):
    """A server is down or unreachable."""


class MigrationError(ZkConsumerError):
    """The group's offsets are not in ZooKeeper any more: start consumers of the coordinator group instead."""


class GroupMigratingError(MigrationError):
    """The group is migrating and has no members meanwhile; the members continue when the migration is complete."""


class InternalError(ZkConsumerError):
    """An impossible state occurred, which is a bug; please report it with this text."""


# --- UsageError -------------------------------------------------------------------------------------------------


class InvalidConfigException(UsageError):
    """The configuration cannot be used; every problem is listed."""


class UnsupportedPlatform(UsageError, ImportError):
    """The package does not run on this system or interpreter; the text explains why, and which one to use instead."""


class InvalidNameError(UsageError):
    """A group, topic, client or consumer name contains a character that paths or requests do not allow."""


class MessageStreamsExistException(UsageError):
    """Streams can be created once per connector; create another connector for other topics."""


class InvalidTopicFilter(UsageError):
    """The pattern of a topic filter is not a valid Java regular expression; correct the pattern."""


class TopicAuthorizationException(UsageError):
    """The brokers' ACLs do not let this user read a topic; allow DESCRIBE and READ on it, or log in as another user."""

    def __init__(self, text: str, unauthorized_topics: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.unauthorized_topics = frozenset(unauthorized_topics)


class InvalidTopicException(UsageError):
    """The brokers do not accept the name of a topic; correct the name in the program."""

    def __init__(self, text: str, invalid_topics: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.invalid_topics = frozenset(invalid_topics)


class NoOffsetForPartitionException(UsageError):
    """A partition has no committed offset, and ``auto.offset.reset=none``; set a policy, commit an offset, or seek."""

    def __init__(self, text: str, partitions: Iterable[TopicPartition] = ()) -> None:
        super().__init__(text)
        self.partitions = frozenset(partitions)


class OffsetOutOfRangeException(UsageError):
    """The log does not have the position of a partition, and ``auto.offset.reset=none``; set a policy, or seek."""

    def __init__(self, text: str, offset_out_of_range_partitions: Mapping[TopicPartition, int]) -> None:
        super().__init__(text)
        self.offset_out_of_range_partitions = dict(offset_out_of_range_partitions)


class LogTruncationException(OffsetOutOfRangeException):
    """The log has lost records that were read, and ``auto.offset.reset=none``; seek to one of ``divergent_offsets``."""

    def __init__(
        self,
        text: str,
        offset_out_of_range_partitions: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, Any],
    ) -> None:
        """``divergent_offsets``: an ``OffsetAndMetadata`` for each partition whose end of the common part is known."""
        super().__init__(text, offset_out_of_range_partitions)
        self.divergent_offsets = dict(divergent_offsets)


class RecordTooLargeException(UsageError):
    """A record is larger than ``max.partition.fetch.bytes``, and the broker is older than 0.10.1; raise the setting."""

    def __init__(self, text: str, record_too_large_partitions: Mapping[TopicPartition, int]) -> None:
        super().__init__(text)
        self.record_too_large_partitions = dict(record_too_large_partitions)


class RecordDeserializationException(UsageError):
    """A deserializer raised an error, which is the cause; correct it, or seek past ``offset`` of ``partition``."""

    def __init__(self, text: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(text)
        self.partition = partition
        self.offset = offset


class ForkedError(UsageError):
    """The process forked after the connector was created; create a connector in the child instead."""


class MessageSizeTooLargeException(UsageError):
    """A message is too large to be fetched; raise ``fetch.message.max.bytes``, or skip it with ``skip_poison()``."""


class OffsetsInKafkaUnsupported(UsageError):
    """``offsets.storage=kafka`` needs brokers from 0.8.2 on; set ``offsets.storage=zookeeper`` for every member."""


class ConnectorClosed(UsageError):
    """The connector is closed; create another one."""


class WakeupException(UsageError):
    """Another thread called ``wakeup()`` to end this blocking call; nothing is lost, and the call may be repeated."""


class UnsupportedVersionException(UsageError):
    """The brokers are too old for the request; the text names the setting to remove, or the release that supports
    it."""


class NoSuchElementException(UsageError, StopIteration):
    """``next()`` was called after the stream had ended."""


class ZkAuthenticationFailed(UsageError):
    """ZooKeeper rejects our login; correct ``zookeeper.auth`` and its file, or add the user at the server."""


class ZkNotAuthorized(UsageError):
    """The ACLs of the group's znodes do not allow this member to work; log in as their owner, or change them."""


class PreconditionFailed(UsageError):
    """A precondition is not met, so nothing was changed; the text explains what to do."""

    exit_code = 4


class AuthenticationException(UsageError):
    """The authentication between a broker and this program failed; correct the TLS and SASL settings of one of them."""


class SslAuthenticationException(AuthenticationException):
    """The TLS handshake failed: one side rejected a certificate or version; the text explains which side and why."""


class SaslAuthenticationException(AuthenticationException):
    """A broker rejected our login; correct the user, password or token, or add the user at the brokers."""


class UnsupportedSaslMechanismException(AuthenticationException):
    """A broker does not have this ``sasl.mechanism``; set one of those in the text, or enable it at the broker."""


class SecurityProtocolMismatch(AuthenticationException):
    """The port of a broker has another protocol than ``security.protocol``; correct the setting or the port."""


# --- PeerError --------------------------------------------------------------------------------------------------


class RemoteProtocolError(PeerError):
    """A broker's answer is invalid in Kafka's protocol; check that it is a Kafka broker, and ``security.protocol``."""


class MalformedZnode(PeerError):
    """A znode contains data that no release accepts; find the program that wrote it, and repair or delete the znode."""


class InvalidMessageException(PeerError):
    """A message is corrupt (checksum or structure); check the broker's disk, or skip it with ``skip_poison()``."""


class UnsupportedCodec(PeerError):
    """A message has an unknown codec or format; a newer producer wrote it, or the bytes are corrupt."""


class GroupRewound(PeerError):
    """The group's offsets were set below the claims of a Spark query; set ``onGroupRewind`` to decide what happens."""


class QueryAlreadyRunning(PeerError):
    """A second run of this Spark query uses the same checkpoint or a copy of it; stop one of the two runs."""


class PipelineAlreadyRunning(PeerError):
    """Another pipeline reads the group; end it first, continue with its checkpoint, or use a group of your own."""


class GroupNotExclusive(PeerError):
    """A group that one Spark query must have exclusively has other members; stop them, or join them."""


class ConsumerIdInUse(PeerError):
    """Another live session uses this ``consumer.id``; stop that process, or choose another id."""


class KafkaException(PeerError):
    """A broker answered with an error; its name and number show whether to change the broker or the request."""


# --- UnavailableError -------------------------------------------------------------------------------------------------


class ZkTimeoutException(UnavailableError):
    """ZooKeeper did not answer in time; start its servers, or correct ``zookeeper.connect``."""


class ChrootMissing(UnavailableError):
    """The chroot of ``zookeeper.connect`` does not exist; create it, or correct the setting."""


class ZkReadNotAuthorized(UnavailableError):
    """ZooKeeper denies reading required znodes; log in as a user of their ACLs, or change the ACLs."""

    exit_code = 4


class BrokerUnreachable(UnavailableError):
    """A broker did not answer; start it, or correct the address that it advertises in ZooKeeper."""


class RetriableException(UnavailableError):
    """A request failed for a transient reason, which the text contains; repeat it."""


class DisconnectException(RetriableException):
    """The connection to a broker ended before its answer; whether it executed the request is unknown."""


class TimeoutException(RetriableException):
    """A request was not answered, or could not be sent, within its timeout; repeat it, or raise the timeout."""


class UnknownHostException(ZkTimeoutException, BrokerUnreachable):
    """No host name in an address setting has an IP address; correct the name, or DNS on this machine."""


class ConsumerRebalanceFailedException(UnavailableError):
    """The member could not get its complete assignment; the text explains why."""


class ConsumerTimeoutException(UnavailableError):
    """No record could be delivered within ``consumer.timeout.ms``; the iterator may be used again."""


class OffsetsNotCommitted(UnavailableError):
    """Some offsets were not committed, so their records are delivered again; ``errors``: partition -> reason."""

    def __init__(self, refused: Mapping[TopicPartition, str]) -> None:
        self.errors = dict(refused)
        some = "; ".join(f"{tp}: {why}" for tp, why in sorted(self.errors.items())[:5])
        more = f"; {len(self.errors) - 5} more" if len(self.errors) > 5 else ""
        super().__init__(f"{len(self.errors)} offsets were not written: {some}{more}")


class HealthUnavailable(UnavailableError):
    """No member answers on a health socket; check that the process runs, and its ``health.socket``."""


class SandboxError(UnavailableError):
    """The local test cluster could not be started; the text explains what is missing."""


class ThreadFailedError(InternalError):
    """A thread of the connector ended with an unexpected error; please report it."""

    @staticmethod
    def of(member: str, thread: str, error: BaseException) -> InternalError:
        """The error of a member whose thread ended with ``error``; an ``InternalError`` is returned unchanged."""
        if isinstance(error, InternalError):
            return error
        died = ThreadFailedError(f"the thread {thread} of {member} ended: {type(error).__name__}: {error}")
        died.__cause__ = error
        return died

"""Every error that leaves this package.  Pure.

Each class answers one question: *who must act?*

    UsageError      you: the call, the configuration or the command line
    PeerError       another member, or a broker, sent what cannot be right
    UnavailableError      something that must be up is down, or out of reach
    MigrationError  the group's authority is elsewhere
    Bug             us: please report it with the story that it carries

The class docstring is the sentence that a person reads; the instance carries the numbers.  Names that the
original had (``ConsumerTimeoutException`` and so on) are the original's names, so that old ``except`` clauses
keep working; each of them stands in one family all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.types import TopicPartition


class ZkConsumerError(Exception):
    """The base of every error of this package."""

    exit_code: ClassVar[int] = 1
    """What the command line ends with after it."""


class UsageError(ZkConsumerError):
    """You asked for something that cannot be done; the text says what to change."""

    exit_code = 2


class PeerError(ZkConsumerError):
    """Another member or a broker sent something that cannot be right."""


class UnavailableError(ZkConsumerError):
    """Something that must be up is down or out of reach."""


class MigrationError(ZkConsumerError):
    """This group's offsets are not kept in ZooKeeper any more: start members of the kind that the group moved to."""


class GroupMigratingError(MigrationError):
    """The group is on its way from one store to the other, and nobody is a member meanwhile: it goes on behind it."""


class InternalError(ZkConsumerError):
    """The program met a state that it holds to be impossible; please report it with this text."""


# --- UsageError -------------------------------------------------------------------------------------------------


class InvalidConfigException(UsageError):
    """The configuration cannot be used; every problem is listed."""


class UnsupportedPlatform(UsageError, ImportError):
    """The package does not run on this system or interpreter; the text says why, and which one to use instead."""


class InvalidNameError(UsageError):
    """A group, topic, client or consumer name holds a character that a path or a request cannot carry."""


class MessageStreamsExistException(UsageError):
    """Streams can be created once per connector; make another connector for other topics."""


class InvalidTopicFilter(UsageError):
    """A topic filter is no regular expression for any Java, so no member could use it; correct the pattern."""


class TopicAuthorizationException(UsageError):
    """The brokers' ACLs do not let this user read a topic; allow DESCRIBE and READ on it, or log in as another user."""


class InvalidTopicException(UsageError):
    """The brokers do not accept the name of a topic; correct the name in the program."""


class ForkedError(UsageError):
    """The process forked after connecting; make a connector in the child instead."""


class MessageSizeTooLargeException(UsageError):
    """A message is too large to be fetched; raise ``fetch.message.max.bytes``, or go past it with ``skip_poison()``."""


class OffsetsInKafkaUnsupported(UsageError):
    """``offsets.storage=kafka`` needs brokers from 0.8.2 on; set ``offsets.storage=zookeeper`` for every member."""


class ConnectorClosed(UsageError):
    """The connector is closed; make another one."""


class NoSuchElementException(UsageError, StopIteration):
    """``next()`` was called after the stream had ended."""


class ZkAuthenticationFailed(UsageError):
    """ZooKeeper does not take our login; correct ``zookeeper.auth`` and its file, or let the server know the user."""


class ZkNotAuthorized(UsageError):
    """The access control lists of the group do not let this member work; log in as their owner, or open them."""


class PreconditionFailed(UsageError):
    """What must hold before anything is changed does not hold, so nothing was changed; the text says what to do."""

    exit_code = 4


class AuthenticationException(UsageError):
    """A broker and this program do not accept each other; correct the settings of TLS and SASL, or the broker's."""


class SslAuthenticationException(AuthenticationException):
    """TLS could not be agreed on: a certificate or a version is refused by one side; the text says by which and why."""


class SaslAuthenticationException(AuthenticationException):
    """A broker did not accept who we are; correct the user, password or token, or add the user at the brokers."""


class UnsupportedSaslMechanismException(AuthenticationException):
    """A broker does not have this ``sasl.mechanism``; take one of those that the text names, or enable it there."""


class SecurityProtocolMismatch(AuthenticationException):
    """The port of a broker speaks another protocol than ``security.protocol``; correct the setting, or the port."""


# --- PeerError --------------------------------------------------------------------------------------------------


class RemoteProtocolError(PeerError):
    """A broker's bytes cannot be what it meant to say; check that it is a Kafka broker, and ``security.protocol``."""


class MalformedZnode(PeerError):
    """A znode holds data that no release would accept; find who wrote it, and repair or delete the znode."""


class InvalidMessageException(PeerError):
    """A message is corrupt (checksum or structure); check the broker's disk, or go past it with ``skip_poison()``."""


class UnsupportedCodec(PeerError):
    """A message has a codec or format that is not known here; a newer producer wrote it, or the bytes are corrupt."""


class GroupRewound(PeerError):
    """Somebody set the group back below what a Spark query claimed; say with ``onGroupRewind`` what shall be done."""


class QueryAlreadyRunning(PeerError):
    """A Spark query was started again, on its checkpoint or a copy of it, while this run lived; stop one of them."""


class GroupNotExclusive(PeerError):
    """Others are members of a group that one Spark query was to take over alone; stop them, or join them."""


class ConsumerIdInUse(PeerError):
    """Another live session holds this ``consumer.id``; stop that process, or choose another id."""


class KafkaException(PeerError):
    """A broker answered with an error; its name and number say whether the broker or the request must change."""


# --- UnavailableError -------------------------------------------------------------------------------------------------


class ZkTimeoutException(UnavailableError):
    """ZooKeeper did not answer in time; start its servers, or correct ``zookeeper.connect``."""


class ChrootMissing(UnavailableError):
    """The chroot of ``zookeeper.connect`` does not exist; create it, or correct the setting."""


class ZkReadNotAuthorized(UnavailableError):
    """ZooKeeper does not let us read nodes that must be looked at; log in as whom their lists name, or open them."""

    exit_code = 4


class BrokerUnreachable(UnavailableError):
    """A broker did not answer; start it, or correct the address that it advertises in ZooKeeper."""


class UnknownHostException(ZkTimeoutException, BrokerUnreachable):
    """No host name of an address setting has an address; correct the name, or DNS on this machine."""


class ConsumerRebalanceFailedException(UnavailableError):
    """The member could not get its share of the partitions; the text says what stands in its way."""


class ConsumerTimeoutException(UnavailableError):
    """Nothing could be handed out within ``consumer.timeout.ms``; the iterator may be used again."""


class OffsetsNotCommitted(UnavailableError):
    """Some offsets were not written, so their records will be handed out again; ``refused`` says which and why."""

    def __init__(self, refused: Mapping[TopicPartition, str]) -> None:
        self.errors = dict(refused)
        some = "; ".join(f"{tp}: {why}" for tp, why in sorted(self.errors.items())[:5])
        more = f"; {len(self.errors) - 5} more" if len(self.errors) > 5 else ""
        super().__init__(f"{len(self.errors)} offsets were not written: {some}{more}")


class HealthUnavailable(UnavailableError):
    """Nothing that is a member answers on a health socket; look whether the process runs, and its ``health.socket``."""


class SandboxError(UnavailableError):
    """The local test cluster could not be started; the text says what is missing."""


class ThreadFailedError(InternalError):
    """A thread of the connector ended by an error that it should have handled."""

    @staticmethod
    def of(member: str, thread: str, error: BaseException) -> InternalError:
        """What ends a member whose thread was ended by ``error``; a ``InternalError`` speaks for itself."""
        if isinstance(error, InternalError):
            return error
        died = ThreadFailedError(f"the thread {thread} of {member} ended: {type(error).__name__}: {error}")
        died.__cause__ = error
        return died

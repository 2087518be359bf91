"""For tests of whoever uses the bridge: a broker in the process, and the judge of what a Spark query and others did."""

from bridge.broker.settings import TlsFiles
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.feed_judge import CODES, Feed, Finding, Judgement, Read, Sunk, judge

__all__ = ["CODES", "EmbeddedBroker", "Feed", "Finding", "Judgement", "Read", "Sunk", "TlsFiles", "judge"]

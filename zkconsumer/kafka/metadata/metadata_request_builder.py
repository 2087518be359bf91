"""``MetadataRequestBuilder``: a Metadata request before its version is chosen (``MetadataRequest.Builder``).  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import UnsupportedVersionException
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

AUTO_CREATION_FROM = 4
"""The version (0.11) from which a request can forbid that a missing topic is created."""

NULL_TOPICS_FROM = 1
"""The version (0.10) from which None means all topics; before, an empty list does."""


@dataclass(frozen=True, slots=True)
class MetadataRequestBuilder:
    """``topics`` None: all.  ``allow_auto_topic_creation``: a broker may create those that are missing."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = True

    @staticmethod
    def all_topics() -> MetadataRequestBuilder:
        """A request for all topics, which never creates one."""
        return MetadataRequestBuilder(None)

    @property
    def is_all_topics(self) -> bool:
        """Whether the request is about all topics."""
        return self.topics is None

    @property
    def version_min(self) -> int:
        """The lowest version that can contain this request."""
        return 0 if self.allow_auto_topic_creation else AUTO_CREATION_FROM

    def build(self, version: int) -> MetadataRequest:
        """The request.  At version 0 one without topics is one for all: the metadata then drops what it does not need.

        ``UnsupportedVersionException``: the version cannot forbid the creation of topics.
        """
        if version < self.version_min:
            raise UnsupportedVersionException(
                f"brokers before 0.11 (Metadata v{version}) create missing topics in any case: set "
                "allow.auto.create.topics=true, or use newer brokers"
            )
        topics = None if self.topics is None else [MetadataRequestTopic(name=topic) for topic in self.topics]
        if topics is None and version < NULL_TOPICS_FROM:
            topics = []
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation)

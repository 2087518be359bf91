"""DescribeConfigs (32): the settings of topics and brokers (0.11, KIP-133).

Version 0 only shows whether a value is the default; from version 1 on (1.1, KIP-226) the answer contains the source of
each value, and the values that it overrides.  Version 3 (2.6, KIP-569) adds types and documentation.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import boolean, int8, int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

RESOURCE_TYPE_TOPIC = 2
"""``resource_type``; 4 is a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""

SOURCE_UNKNOWN = -1
"""``config_source``; 1 the topic, 2 and 3 a broker's and all brokers' changes, 4 the broker's file, 5 the default."""


@message
class DescribeConfigsResource:
    """``configuration_keys`` None: all of them."""

    resource_type: int = f(int8)
    resource_name: str = f(text)
    configuration_keys: list[str] | None = f(array(text), nullable="0+", default=None)


@message
class DescribeConfigsRequest:
    """Any broker describes topics; only the broker itself describes its settings."""

    resources: list[DescribeConfigsResource] = f(array(DescribeConfigsResource))
    include_synonyms: bool = f(boolean, "1+", default=False, needed=True)
    include_documentation: bool = f(boolean, "3+", default=False, needed=True)


@message
class ConfigSynonym:
    """The effective value, or a value that it overrides."""

    name: str = f(text)
    value: str | None = f(text, nullable="0+", default=None)
    source: int = f(int8)


@message
class DescribedConfig:
    """One setting; ``value`` None: it is secret, or not set.  ``config_type``: 1 boolean, 2 string, 3 int …."""

    name: str = f(text)
    value: str | None = f(text, nullable="0+", default=None)
    read_only: bool = f(boolean, default=False)
    is_default: bool = f(boolean, "0", default=False)
    config_source: int = f(int8, "1+", default=SOURCE_UNKNOWN)
    is_sensitive: bool = f(boolean, default=False)
    synonyms: list[ConfigSynonym] = f(array(ConfigSynonym), "1+", default_factory=list)
    config_type: int = f(int8, "3+", default=0)
    documentation: str | None = f(text, "3+", nullable="3+", default=None)


@message
class DescribedResource:
    """The settings of one resource."""

    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, nullable="0+", default=None)
    resource_type: int = f(int8)
    resource_name: str = f(text)
    configs: list[DescribedConfig] = f(array(DescribedConfig), default_factory=list)


@message
class DescribeConfigsResponse:
    """One entry for each requested resource."""

    throttle_time_ms: int = f(int32, default=0)
    results: list[DescribedResource] = f(array(DescribedResource))


DESCRIBE_CONFIGS = Api(
    32, "DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse, highest=4, flexible_from=4
)

"""ApiVersions (18): the versions of each API that a broker supports (Kafka 0.10.0, KIP-35).

A broker that does not support the requested version answers error 35 in the layout of version 0; since 2.4 (KIP-511)
this answer contains its ApiVersions range, before it contained no API.  Version 4 (3.9) differs from 3 in one point:
the answer also contains features whose lowest version is 0.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import boolean, int16, int32, int64, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message


@message
class ApiVersionsRequest:
    """The client's name and version are for the broker's metrics (2.4, KIP-511)."""

    client_software_name: str = f(text, "3+", default="")
    client_software_version: str = f(text, "3+", default="")


@message
class ApiVersion:
    """One API and the lowest and highest version that the broker supports."""

    api_key: int = f(int16)
    min_version: int = f(int16)
    max_version: int = f(int16)


@message
class SupportedFeature:
    """A feature that the broker supports (2.7, KIP-584)."""

    name: str = f(text)
    min_version: int = f(int16)
    max_version: int = f(int16)


@message
class FinalizedFeature:
    """A finalized feature level of the cluster (2.7, KIP-584)."""

    name: str = f(text)
    max_version_level: int = f(int16)
    min_version_level: int = f(int16)


@message
class ApiVersionsResponse:
    """``throttle_time_ms``: how long the broker delayed the answer because of a quota."""

    error_code: int = f(int16, default=0)
    api_keys: list[ApiVersion] = f(array(ApiVersion))
    throttle_time_ms: int = f(int32, "1+", default=0)
    supported_features: list[SupportedFeature] = f(array(SupportedFeature), "3+", tag=0, default_factory=list)
    finalized_features_epoch: int = f(int64, "3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeature] = f(array(FinalizedFeature), "3+", tag=2, default_factory=list)
    zk_migration_ready: bool = f(boolean, "3+", tag=3, default=False)


API_VERSIONS = Api(18, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse, highest=4, flexible_from=3, client_max=3)

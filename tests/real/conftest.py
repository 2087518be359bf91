"""The fixtures that start real servers, for every test of this folder."""

from tests.fix_sandbox import (  # noqa: F401 (pytest finds fixtures by their names here)
    fresh_name,
    own_cache,
    sandbox,
    shared_cluster,
    zookeeper_connect,
    zookeeper_server,
)

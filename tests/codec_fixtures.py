"""Each test of a module that imports ``codecs_in_use`` runs twice: with the default packages, and with those of the
extra ``[fast]`` in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from zkconsumer.wire import compression

INSTALLED: tuple[Any, Any] = compression._isal, compression._zstandard


@contextmanager
def decoding_with(isal: Any, zstandard: Any) -> Iterator[None]:
    """The two packages of the extra; None for the default in its place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_isal", isal)
        patch.setattr(compression, "_zstandard", zstandard)
        # zlib is the faster one for the smallest payloads, which are most of those of the tests.
        patch.setattr(compression, "_ISAL_BYTES_MIN", 0)
        yield


@pytest.fixture(scope="module", params=["default", "fast"], autouse=True)
def codecs_in_use(request: pytest.FixtureRequest) -> Iterator[str]:
    packages = INSTALLED if request.param == "fast" else (None, None)
    if request.param == "fast" and None in packages:
        pytest.skip("installed without the extra [fast]")
    with decoding_with(*packages):
        yield request.param

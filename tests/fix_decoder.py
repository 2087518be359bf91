"""Each test of a module that imports ``decoder`` runs twice: with the compiled loops, and with numpy in their place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.spark import compiled


@pytest.fixture(scope="module", params=["compiled", "numpy"], autouse=True)
def decoder(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "compiled" and not compiled.is_there():
        pytest.skip("installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(compiled, "_ROWS", None)
        yield request.param

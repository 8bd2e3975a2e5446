from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import berm  # noqa: E402
from stub import TOKEN, Stub  # noqa: E402


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "daemon: needs BERM_URL and BERM_TOKEN of a daemon")
    # What the environment says goes to the tests of a daemon alone.
    config.daemon = {k: os.environ.pop(k, "") for k in ("BERM_URL", "BERM_TOKEN")}
    for name in ("BERM_STATE", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ.pop(name, None)


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.close()


@pytest.fixture
def client(stub: Stub) -> Iterator[berm.Client]:
    with berm.Client(stub.url, TOKEN, retry_seconds=2, create_retry_seconds=5) as made:
        yield made


@pytest.fixture
def box(client: berm.Client) -> berm.Sandbox:
    return client.create()


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Iterator[berm.Client]:
    where: Dict[str, str] = request.config.daemon  # type: ignore[attr-defined]
    if not where["BERM_URL"] or not where["BERM_TOKEN"]:
        pytest.skip("BERM_URL and BERM_TOKEN name no daemon")
    with berm.Client(where["BERM_URL"], where["BERM_TOKEN"]) as made:
        yield made

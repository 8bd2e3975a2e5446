"""The real, unmodified PandaStack SDK against a daemon on this machine."""

from __future__ import annotations

import ipaddress
import os
import tempfile
import uuid
from typing import Any, Iterator
from urllib.parse import urlsplit

import pytest

API = os.environ.get("PANDASTACK_API", "")


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# The SDK goes to the hosted service when the address is missing or empty.
if not _loopback(API):
    pytest.exit(f"PANDASTACK_API is {API!r}, which is no loopback address: refusing to run", returncode=2)
if not os.environ.get("PANDASTACK_API_KEY"):
    pytest.exit("PANDASTACK_API_KEY is not set", returncode=2)

# What requests honours and what would lead elsewhere: proxies, .netrc (which
# replaces the token), other authorities, the SDK's own config file.
for name in list(os.environ):
    if name.lower().endswith("_proxy") or name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"):
        del os.environ[name]
os.environ["HOME"] = tempfile.mkdtemp(prefix="compat-home-")

import pandastack  # noqa: E402
from pandastack import Sandbox  # noqa: E402


@pytest.fixture(scope="session")
def client() -> Any:
    made = pandastack.Client()
    assert made.api_url == API.rstrip("/")
    pandastack.set_default_client(made)
    return made


@pytest.fixture(scope="session")
def run_id() -> str:
    return "compat-" + uuid.uuid4().hex


@pytest.fixture(scope="module")
def box(client: Any, run_id: str) -> Iterator[Sandbox]:
    """One sandbox for all tests of a file that leave it usable."""
    with client.sandboxes.create(ttl_seconds=600, metadata={"run_id": run_id}) as made:
        yield made


@pytest.fixture
def fresh(client: Any, run_id: str) -> Iterator[Sandbox]:
    made = client.sandboxes.create(ttl_seconds=300, metadata={"run_id": run_id})
    yield made
    made.kill()

"""The synchronous counterpart of ``_aio``."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, Tuple, TypeVar, Union

import httpx

from .config import Config

T = TypeVar("T")
CHUNK = 256 << 10

_lock = threading.Lock()
_clients: Dict[Tuple[int, Config], Any] = {}


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def run(f: Callable[..., T], *args: Any) -> T:
    return f(*args)


def call(f: Callable[[str], Any], text: str) -> None:
    f(text)


def http(config: Config, timeout: httpx.Timeout, verify: Any) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=config.socket) if config.socket else None
    return httpx.Client(
        base_url=config.url, timeout=timeout, transport=transport, verify=verify,
        trust_env=not config.local, follow_redirects=False,
        limits=httpx.Limits(max_connections=256, max_keepalive_connections=32),
    )


def pieces(source: Union[Iterable[bytes], Any]) -> Iterator[bytes]:
    if hasattr(source, "read"):
        while True:
            piece = source.read(CHUNK)
            if not piece:
                return
            yield piece.encode() if isinstance(piece, str) else piece
    else:
        yield from source


def shared(config: Config) -> Tuple[Any, bool]:
    """The client of this process for that daemon, so that its connections stay
    warm from one sandbox to the next. A forked child has one of its own."""
    from ._sync.client import Client

    key = (os.getpid(), config)
    with _lock:
        if key not in _clients:
            for old in [k for k in _clients if k[0] != key[0]]:
                del _clients[old]  # the parent's: its connections are not ours to close
            _clients[key] = Client(url=config.url if not config.socket else "unix://" + config.socket, token=config.token)
        return _clients[key], False


def close_shared() -> None:
    """Closes the connections that :meth:`Sandbox.create` and the like keep."""
    with _lock:
        for key, client in list(_clients.items()):
            del _clients[key]
            if key[0] == os.getpid():
                client.close()

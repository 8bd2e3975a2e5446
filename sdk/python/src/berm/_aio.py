"""What the asynchronous client needs of its loop. ``_sio`` has the same names
for the synchronous one, which is made from it (scripts/unasync.py)."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterable, AsyncIterator, Callable, Iterable, Tuple, TypeVar, Union

import httpx

from .config import Config

T = TypeVar("T")
CHUNK = 256 << 10


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def run(f: Callable[..., T], *args: Any) -> T:
    """Calls what may block (a local file) without holding up the loop."""
    return await asyncio.to_thread(f, *args)


async def call(f: Callable[[str], Any], text: str) -> None:
    """Calls a callback, which may be a coroutine function."""
    got = f(text)
    if asyncio.iscoroutine(got):
        await got


def http(config: Config, timeout: httpx.Timeout, verify: Any) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=config.socket) if config.socket else None
    return httpx.AsyncClient(
        base_url=config.url, timeout=timeout, transport=transport, verify=verify,
        trust_env=not config.local, follow_redirects=False,
        limits=httpx.Limits(max_connections=256, max_keepalive_connections=32),
    )


async def pieces(source: Union[Iterable[bytes], AsyncIterable[bytes], Any]) -> AsyncIterator[bytes]:
    """The bytes of a file object or an iterable, a piece at a time."""
    if hasattr(source, "read"):
        while True:
            piece = await run(source.read, CHUNK)
            if not piece:
                return
            yield piece.encode() if isinstance(piece, str) else piece
    elif hasattr(source, "__aiter__"):
        async for piece in source:
            yield piece
    else:
        for piece in source:
            yield piece


def shared(config: Config) -> Tuple[Any, bool]:
    """No client is shared between loops: every sandbox has its own."""
    return None, True

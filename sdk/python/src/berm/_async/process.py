from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Optional, Type, Union

import httpx

from .. import _aio as io
from .. import _wire as wire
from .. import errors
from ..models import ExecInfo, ExecResult, OutputChunk

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncProcess:
    """A command that goes on without its caller. Its output is kept (the first
    and the last part of much) and can be read from the start at any time, by
    anybody who knows ``exec_id``."""

    def __init__(self, sandbox: "AsyncSandbox", exec_id: str) -> None:
        self.sandbox = sandbox
        self.exec_id = exec_id
        self._client = sandbox.client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.exec_id!r}, sandbox={self.sandbox.id!r})"

    def _path(self, *rest: str) -> str:
        return wire.sandbox_path(self.sandbox.id, "execs", self.exec_id, *rest)

    async def info(self) -> ExecInfo:
        """What is known of it now."""
        return ExecInfo.of(await self._client.json("GET", self._path()))

    async def poll(self) -> Optional[int]:
        """Its exit code, or None while it runs."""
        result = (await self.info()).result
        return None if result is None else result.exit_code

    async def output(self, offset: int = 0, *, follow: bool = True) -> AsyncIterator[OutputChunk]:
        """What it writes, from ``offset`` on; with ``follow`` until it ends.
        A broken connection is taken up again where it broke."""
        async for chunk in follow_output(self, wire.Follower(offset), None, follow):
            yield chunk

    async def wait(self) -> ExecResult:
        """Waits for its end; the result has the output from the start."""
        collector, follower = wire.Collector(), wire.Follower()
        async for chunk in follow_output(self, follower, None, True):
            collector.add(chunk)
        assert follower.result is not None
        return collector.result(follower.result)

    async def kill(self) -> None:
        """Ends it with everything that it started. One that has ended is fine."""
        try:
            await self._client.request(
                "DELETE", self._path(), retry=wire.Retry(self._client.retry_seconds, safe=True))
        except (errors.ConflictError, errors.SandboxEndedError):
            pass

    async def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal (``"TERM"``, ``15``) to its process group."""
        number = int(signal) if isinstance(signal, int) else signal
        await self._client.request("POST", self._path("signal"), json={"signal": str(number)})

    async def write_stdin(self, data: Union[str, bytes]) -> None:
        """Sends to its standard input; it was started with ``stdin=True``."""
        data = data.encode() if isinstance(data, str) else data
        await self._client.request("POST", self._path("stdin"), content=data)

    async def close_stdin(self) -> None:
        """Says that no more input comes."""
        await self._client.request("POST", self._path("stdin"), params={"end": "1"})


class AsyncExecStream:
    """The output of a command while it runs; iterate over it. After the end
    ``result`` says how it ended. Leaving early ends the command."""

    def __init__(self, process: AsyncProcess, body: Dict[str, Any]) -> None:
        self.process = process
        self.exec_id = process.exec_id
        self.result: Optional[ExecResult] = None
        self._collector = wire.Collector()
        self._chunks = self._run(body)

    async def _run(self, body: Dict[str, Any]) -> AsyncIterator[OutputChunk]:
        follower = wire.Follower()
        try:
            async for chunk in follow_output(self.process, follower, body, True):
                self._collector.add(chunk)
                yield chunk
        except httpx.HTTPError as err:
            raise wire.transport_error(err, "exec") from err
        except errors.ExecInterrupted as err:
            err.stdout, err.stderr = self._collector.text("stdout"), self._collector.text("stderr")
            raise
        except BaseException as err:
            if not isinstance(err, Exception):  # the caller left, or is being ended itself
                await self._abandon()
            raise
        assert follower.result is not None
        self.result = self._collector.result(follower.result)

    async def _abandon(self) -> None:
        try:
            await self.process.kill()
        except errors.BermError:
            pass  # its time ends it

    def __aiter__(self) -> "AsyncExecStream":
        return self

    async def __anext__(self) -> OutputChunk:
        return await self._chunks.__anext__()

    async def close(self) -> None:
        """Ends the command if it still runs."""
        if self.result is None:
            await self._chunks.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> "AsyncExecStream":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        await self.close()


async def follow_output(
    process: AsyncProcess, follower: wire.Follower, start: Optional[Dict[str, Any]], follow: bool
) -> AsyncIterator[OutputChunk]:
    """The chunks of a command up to its end. With ``start`` it starts the
    command first. After a break it asks for the same command by its id, which
    the client made, so nothing runs twice; it gives up when the daemon stays
    away for the client's ``retry_seconds``."""
    client = process.sandbox.client
    stream = wire.sandbox_path(process.sandbox.id, "exec", "stream")
    known = start is None  # the daemon has said that it knows this command
    retry = wire.Retry(client.retry_seconds, safe=True)
    while True:
        broke: Exception
        follower.over = False
        try:
            if known:
                response = await client.open("GET", process._path("output"), retry=retry,
                                             params={"offset": str(follower.next), "follow": wire.switch(follow)})
            else:
                response = await client.open("POST", stream, json=start, retry=retry)
            known = True
            async for name, data in client.events_of(response):
                chunk = follower.event(name, data)
                if chunk is not None:
                    retry = wire.Retry(client.retry_seconds, safe=True)  # it moves: the clock starts anew
                    yield chunk
                if follower.over:
                    break
            if follower.result is not None or (follower.over and not follow):
                for chunk in follower.rest():
                    yield chunk
                return
            broke = httpx.RemoteProtocolError("the stream ended before the command did")
        except httpx.TransportError as err:
            broke = err
        except errors.CapacityError as err:
            if err.code != "daemon.stopping":
                raise
            broke = err
        except errors.ConnectionError as err:
            if not known and not retry.arrived:
                raise
            raise _interrupted(process, err) from err
        except errors.NotFoundError as err:
            if err.code != "exec.not-found" or start is None:
                raise
            raise errors.ExecInterrupted(
                "the connection broke, and the daemon no longer knows the command", exec_id=process.exec_id) from err
        wait = retry.after(broke)
        if wait is None:
            raise _interrupted(process, broke) from broke
        await io.sleep(wait)


def _interrupted(process: AsyncProcess, why: Exception) -> errors.ExecInterrupted:
    return errors.ExecInterrupted(
        f"the connection broke and did not come back ({why}); the command may still run", exec_id=process.exec_id)

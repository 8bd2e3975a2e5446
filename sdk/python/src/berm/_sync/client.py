# Made from ../_async/client.py by scripts/unasync.py; edit that one.
from __future__ import annotations

from types import TracebackType
from typing import Any, Iterator, Dict, List, Mapping, Optional, Sequence, Type, Union

import httpx

from .. import _sio as io
from .. import _wire as wire
from .. import errors
from ..config import Config, resolve
from ..models import Event, Limits, SandboxInfo, take
from .sandbox import Sandbox
from .templates import Templates


class Client:
    """A connection to a daemon, for many sandboxes.

    Without arguments it finds the daemon as the command line does: ``BERM_URL``
    and ``BERM_TOKEN``, else the socket and token of the state directory.
    ``timeout`` is how long it waits between two bytes of an answer; the daemon
    sends something at least every ten seconds while a command runs.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        state: Optional[str] = None,
        timeout: float = 60.0,
        retry_seconds: float = 15.0,
        create_retry_seconds: float = 60.0,
        verify: Any = True,
    ) -> None:
        self.config: Config = resolve(url, token, state)
        self.retry_seconds = retry_seconds
        self.create_retry_seconds = create_retry_seconds
        self.timeout = timeout
        if self.config.url.startswith("http://"):
            verify = False  # no TLS to verify, and loading the CA bundle takes a while
        self.templates = Templates(self)
        self._http = io.http(self.config, httpx.Timeout(timeout, connect=min(timeout, 10.0)), verify)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        self.close()

    # Requests. Everything else goes through these two.

    def open(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Any = None,
        content: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        retry: Optional[wire.Retry] = None,
    ) -> httpx.Response:
        """Sends one request and returns the answer with its body unread; the
        caller closes it. An answer that is an error is raised."""
        if retry is None:
            retry = wire.Retry(self.retry_seconds, safe=method in ("GET", "HEAD"))
        sent: Dict[str, str] = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "berm-py/0.1.0"}
        if self.config.token:
            sent["Authorization"] = f"Bearer {self.config.token}"
        sent.update(headers or {})
        if content is None and json is None and method in ("POST", "PUT", "PATCH"):
            content = b""
        while True:
            failed: Exception
            try:
                request = self._http.build_request(
                    method, path, json=json, params=params, content=content, headers=sent)
                response = self._http.send(request, stream=True)
                if 200 <= response.status_code < 300:
                    return response
                failed = wire.answer_error(response, self._body(response, 1 << 20, cut=True))
            except httpx.TransportError as err:
                failed = err
            wait = retry.after(failed)
            if wait is None:
                if isinstance(failed, errors.BermError):
                    raise failed
                raise wire.transport_error(failed, f"{method} {path}") from failed
            io.sleep(wait)

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Any = None,
        content: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        retry: Optional[wire.Retry] = None,
        limit: int = wire.MAX_ANSWER,
    ) -> bytes:
        """Sends one request and returns the body of its answer, at most
        ``limit`` bytes of it."""
        if retry is None:
            retry = wire.Retry(self.retry_seconds, safe=method in ("GET", "HEAD"))
        while True:
            response = self.open(
                method, path, json=json, params=params, content=content, headers=headers, retry=retry)
            try:
                return self._body(response, limit)
            except httpx.TransportError as err:
                wait = retry.after(err)
                if wait is None:
                    raise wire.transport_error(err, f"{method} {path}") from err
            io.sleep(wait)

    def json(self, method: str, path: str, **more: Any) -> Any:
        """The same, decoded; None for an empty answer."""
        body = self.request(method, path, **more)
        if not body.strip():
            return None
        try:
            import json as j

            return j.loads(body)
        except ValueError as err:
            raise errors.ServerError(f"{method} {path}: the answer is not JSON", code="client.answer") from err

    def _body(self, response: httpx.Response, limit: int, cut: bool = False) -> bytes:
        got = bytearray()
        try:
            for piece in response.iter_raw():
                got += piece
                if len(got) > limit:
                    if cut:
                        return bytes(got[:limit])
                    raise errors.TooLargeError(
                        f"the answer is larger than {limit} bytes", code="client.too-large",
                        hint="read it as a stream: filesystem.download, or exec_stream")
        finally:
            response.close()
        return bytes(got)

    def events_of(self, response: httpx.Response) -> Iterator[Any]:
        """The server-sent events of an answer, as (name, data)."""
        cutter = wire.Events()
        try:
            for piece in response.iter_raw():
                for event in cutter.feed(piece):
                    yield event
        finally:
            response.close()

    # Sandboxes.

    def create(
        self,
        template: Optional[str] = None,
        *,
        ttl_seconds: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        tags: Optional[Mapping[str, str]] = None,
        session: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        limits: Union[Limits, Mapping[str, Any], None] = None,
        isolation: Optional[str] = None,
        min_isolation: Optional[str] = None,
        timeout_seconds: Optional[float] = None,
        idle_timeout_seconds: Optional[float] = None,
        persistent: bool = False,
        egress: Optional[wire.Rules] = None,
        learn: bool = False,
    ) -> Sandbox:
        """Makes a sandbox; see :meth:`Sandbox.create`."""
        body = wire.create_body(
            template=template, ttl_seconds=ttl_seconds, metadata=metadata, tags=tags, session=session, env=env,
            limits=limits, isolation=isolation, min_isolation=min_isolation, timeout_seconds=timeout_seconds,
            idle_timeout_seconds=idle_timeout_seconds, persistent=persistent, egress=egress, learn=learn)
        # The key makes a second copy of this request answer with the first one's
        # sandbox, so it may be sent again whatever became of it.
        got = self.json(
            "POST", "/v1/sandboxes", json=body, headers={"Idempotency-Key": wire.new_key()},
            retry=wire.Retry(self.create_retry_seconds, safe=True, capacity=True))
        return Sandbox(self, self._info(got))

    def connect(self, sandbox_id: str) -> Sandbox:
        """A sandbox that exists."""
        return Sandbox(self, self._info(self.json("GET", wire.sandbox_path(sandbox_id))))

    def list(
        self,
        *,
        tags: Optional[Mapping[str, str]] = None,
        session: Optional[str] = None,
        run_id: Optional[str] = None,
        state: Optional[str] = None,
        ended: bool = False,
    ) -> List[Sandbox]:
        """This tenant's sandboxes, newest first; the ended ones too with ``ended``."""
        params: List[Any] = [("tag", f"{k}={v}") for k, v in (tags or {}).items()]
        for key, value in (("session", session), ("run_id", run_id), ("state", state), ("ended", "1" if ended else None)):
            if value is not None:
                params.append((key, value))
        got = self.json("GET", "/v1/sandboxes", params=params)
        if isinstance(got, dict):
            got = got.get("items")
        return [Sandbox(self, self._info(one)) for one in got or []]

    def _info(self, got: Any) -> SandboxInfo:
        info = take(SandboxInfo, got)
        if not info.sandbox_id:
            raise errors.ServerError("the answer has no sandbox_id", code="client.answer")
        return info

    # The daemon.

    def version(self) -> Dict[str, Any]:
        got = self.json("GET", "/v1/version")
        return dict(got or {})

    def me(self) -> Dict[str, Any]:
        """Whose token this is: tenant and role."""
        got = self.json("GET", "/v1/me")
        return dict(got or {})

    def events(
        self,
        *,
        after: int = 0,
        types: Sequence[str] = (),
        sandbox_id: Optional[str] = None,
        run_id: Optional[str] = None,
        session: Optional[str] = None,
        follow: bool = False,
    ) -> Iterator[Event]:
        """Lines of the audit log from ``after`` on. With ``follow`` it goes on
        for ever, over breaks too, and misses none."""
        while True:
            params: List[Any] = [("after", str(after)), *(("type", t) for t in types)]
            for key, value in (("sandbox_id", sandbox_id), ("run_id", run_id), ("session", session)):
                if value is not None:
                    params.append((key, value))
            if follow:
                params.append(("wait", "20"))
            got = self.json("GET", "/v1/events", params=params)
            found = got.get("events") or []
            for one in found:
                yield take(Event, one)
            next_after = int(got.get("next") or after)
            if not follow and (not found or next_after <= after):
                return
            after = max(after, next_after)

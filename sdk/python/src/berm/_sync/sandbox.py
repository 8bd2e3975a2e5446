# Made from ../_async/sandbox.py by scripts/unasync.py; edit that one.
from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

import httpx

from .. import _sio as io
from .. import _wire as wire
from .. import errors
from ..config import resolve
from ..models import EgressState, Event, ExecInfo, ExecResult, Lifecycle, Limits, LogLine, Metrics, Port, SandboxInfo, take
from .files import Filesystem
from .process import ExecStream, Process

if TYPE_CHECKING:
    from .client import Client


class Sandbox:
    """One disposable environment.

    Made by :meth:`create`, it is a context manager that ends it, unless it is
    ``persistent``: that one lives until :meth:`kill` or its ttl.
    """

    def __init__(self, client: "Client", info: SandboxInfo, *, owns_client: bool = False) -> None:
        self.client = client
        self.info = info
        self.filesystem = Filesystem(self)
        self.files = self.filesystem
        self.commands = Commands(self)
        self._owns_client = owns_client

    @classmethod
    def create(
        cls,
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
        client: Optional["Client"] = None,
    ) -> "Sandbox":
        """Makes a sandbox. What is not said is the daemon's default, and that
        is closed: no network, no environment, no files but the template's.

        :param ttl_seconds: hard wall clock from creation; it ends everything.
        :param idle_timeout_seconds: ends it when nothing was asked for so long
            and no command runs. ``persistent`` switches this off, and no cap.
        :param timeout_seconds: of each command that names none itself.
        :param metadata: the same map as ``tags``; ``run_id`` and ``session``
            in it are what the audit log is searched by.
        :param min_isolation: the weakest boundary that will do, ``"gvisor"``
            or ``"microvm"``; a daemon that cannot keep it refuses.
        :param egress: the only hosts it may reach: rules, or strings that stand
            for ``{"allow": string}``. Without it there is no link; ``[]`` is a
            link on which all is denied and seen, and which can be changed later.
        :param learn: denies all and finds out what would have been needed:
            ``wanted`` of :meth:`egress`. Only without rules.
        """
        made, owns = _client(client)
        try:
            sandbox = made.create(
                template, ttl_seconds=ttl_seconds, metadata=metadata, tags=tags, session=session, env=env,
                limits=limits, isolation=isolation, min_isolation=min_isolation, timeout_seconds=timeout_seconds,
                idle_timeout_seconds=idle_timeout_seconds, persistent=persistent, egress=egress, learn=learn)
        except BaseException:
            if owns:
                made.close()
            raise
        sandbox._owns_client = owns
        return sandbox

    @classmethod
    def connect(cls, sandbox_id: str, *, client: Optional["Client"] = None) -> "Sandbox":
        """A sandbox that exists. Leaving its context ends it too."""
        made, owns = _client(client)
        try:
            sandbox = made.connect(sandbox_id)
        except BaseException:
            if owns:
                made.close()
            raise
        sandbox._owns_client = owns
        return sandbox

    @classmethod
    def list(
        cls,
        *,
        tags: Optional[Mapping[str, str]] = None,
        session: Optional[str] = None,
        run_id: Optional[str] = None,
        state: Optional[str] = None,
        ended: bool = False,
        client: Optional["Client"] = None,
    ) -> List["SandboxInfo"]:
        """What is known of this tenant's sandboxes; :meth:`connect` to use one."""
        made, owns = _client(client)
        try:
            found = made.list(tags=tags, session=session, run_id=run_id, state=state, ended=ended)
        finally:
            if owns:
                made.close()
        return [one.info for one in found]

    # What it is.

    @property
    def id(self) -> str:
        return self.info.sandbox_id

    @property
    def sandbox_id(self) -> str:
        return self.info.sandbox_id

    @property
    def status(self) -> str:
        """As of the last :meth:`refresh`."""
        return self.info.status

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.info.tags

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.info.isolation or '?'}, {self.info.state or self.info.status})"

    def refresh(self) -> SandboxInfo:
        self.info = take(SandboxInfo, self._json("GET"))
        return self.info

    # Commands.

    def exec(
        self,
        cmd: wire.Command,
        timeout_seconds: Optional[float] = None,
        check: bool = False,
        *,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        input: Union[str, bytes, None] = None,
        session: Optional[str] = None,
    ) -> ExecResult:
        """Runs a command and returns how it ended. A string runs under
        ``sh -c``, a list as it is.

        A command that time ended is a result too: ``exit_code`` 124,
        ``timed_out`` true and what it wrote until then. With ``check`` any end
        but 0 raises CommandFailed, that one CommandTimeout.
        """
        if on_stdout is not None or on_stderr is not None:
            stream = self.exec_stream(
                cmd, timeout_seconds, env=env, cwd=cwd, user=user, input=input, session=session)
            with stream:
                for chunk in stream:
                    tell = on_stdout if chunk.stream == "stdout" else on_stderr
                    if tell is not None and chunk.text:
                        io.call(tell, chunk.text)
            assert stream.result is not None
            return wire.checked(stream.result, cmd, check)
        body = wire.exec_body(
            cmd, timeout_seconds=timeout_seconds, env=env, cwd=cwd, user=user, input=input, session=session,
            exec_id=wire.new_exec_id())
        retry = self._again()
        try:
            got = self._json("POST", "exec", json=body, retry=retry)
            result = ExecResult.of(got or {})
        except ValueError as err:
            raise errors.ServerError(f"exec: {err}", code="client.answer") from err
        except errors.ConnectionError as err:
            if not retry.arrived:
                raise
            raise errors.ExecInterrupted(
                f"{err.message}; the command may have run", exec_id=body["exec_id"]) from err
        return wire.checked(result, cmd, check)

    def exec_stream(
        self,
        cmd: wire.Command,
        timeout_seconds: Optional[float] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        input: Union[str, bytes, None] = None,
        session: Optional[str] = None,
    ) -> ExecStream:
        """Runs a command and iterates over its output as it comes; ``result``
        of the stream says afterwards how it ended."""
        process = Process(self, wire.new_exec_id())
        body = wire.exec_body(
            cmd, timeout_seconds=timeout_seconds, env=env, cwd=cwd, user=user, input=input, session=session,
            exec_id=process.exec_id, detach=True)
        return ExecStream(process, body)

    def spawn(
        self,
        cmd: wire.Command,
        timeout_seconds: Optional[float] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: bool = False,
        session: Optional[str] = None,
    ) -> Process:
        """Starts a command in the background and returns a handle of it."""
        process = Process(self, wire.new_exec_id())
        body = wire.exec_body(
            cmd, timeout_seconds=timeout_seconds, env=env, cwd=cwd, user=user, stdin=stdin, session=session,
            exec_id=process.exec_id, detach=True)
        self._json("POST", "exec", json=body, retry=wire.Retry(self.client.retry_seconds, safe=True))
        return process

    def process(self, exec_id: str) -> Process:
        """A command that was started before, from here or elsewhere."""
        return Process(self, exec_id)

    def execs(self) -> List[ExecInfo]:
        """The commands of this sandbox, newest first."""
        got = self._json("GET", "execs")
        return [ExecInfo.of(one) for one in (got or {}).get("execs") or []]

    def run_code(self, code: str, language: str = "python", *, timeout_seconds: Optional[float] = None) -> ExecResult:
        """Runs a program given as text, of any length up to the request's bound."""
        runner = {"python": "python3", "py": "python3", "python3": "python3", "bash": "bash", "shell": "sh", "sh": "sh",
                  "node": "node", "js": "node", "javascript": "node"}.get(language.lower())
        if runner is None:
            raise errors.BadRequestError(f"{language!r} is no language that run_code knows", code="request.invalid")
        return self.exec([runner, "-"] if runner != "sh" else [runner, "-s"], timeout_seconds, input=code)

    # Time.

    def lifecycle(self) -> Lifecycle:
        return take(Lifecycle, self._json("GET", "lifecycle"))

    def set_ttl(self, seconds: float) -> Lifecycle:
        """Seconds from its creation after which it ends, whatever it does."""
        return self._set_lifecycle({"ttl_seconds": seconds})

    def set_idle_timeout(self, seconds: float) -> Lifecycle:
        return self._set_lifecycle({"idle_timeout_seconds": seconds})

    def set_persistent(self, persistent: bool = True) -> Lifecycle:
        """Switches the idle reaper off or on; the ttl and every cap stay."""
        return self._set_lifecycle({"persistent": persistent})

    def _set_lifecycle(self, change: Dict[str, Any]) -> Lifecycle:
        got = take(Lifecycle, self._json("PATCH", "lifecycle", json=change, retry=self._again()))
        self.refresh()
        return got

    # The wire.

    def egress(self) -> EgressState:
        """What it may reach, and what it has; kept for a day after its end."""
        return EgressState.of(self._json("GET", "egress"))

    def set_egress(self, rules: wire.Rules) -> EgressState:
        """Puts other rules in force, at once: what they do not allow is cut.

        An agent's token may only narrow (ForbiddenError, ``policy.wider``), and
        a sandbox without a link never gets one (ConflictError, ``egress.no-link``).
        """
        got = EgressState.of(self._json("PATCH", "egress", json={"egress": wire.rules(rules)}, retry=self._again()))
        self.refresh()
        return got

    def pause(self) -> None:
        """Stops everything in it; its deadlines go on."""
        self._json("POST", "pause", retry=self._again())

    def resume(self) -> None:
        self._json("POST", "resume", retry=self._again())

    def kill(self) -> None:
        """Ends it and destroys all that was in it. Twice is fine."""
        try:
            self._json("DELETE", retry=self._again())
        except errors.SandboxEndedError:
            pass
        finally:
            if self._owns_client:
                self.client.close()

    # Looking.

    def set_tags(self, tags: Mapping[str, Optional[str]]) -> Mapping[str, str]:
        """Sets tags; None removes one. ``session`` cannot change."""
        self._json("PATCH", "metadata", json={"tags": dict(tags)}, retry=self._again())
        return (self.refresh()).tags

    def metrics(self) -> Metrics:
        return take(Metrics, self._json("GET", "metrics"))

    def report(self) -> Dict[str, Any]:
        """Commands, files in and out, denials, caps and the ending; kept for a
        day after the end."""
        return dict(self._json("GET", "report") or {})

    def events(self, *, after: int = 0, types: Sequence[str] = (), follow: bool = False) -> Iterator[Event]:
        """Its lines of the audit log; with ``follow`` until the caller leaves."""
        for event in self.client.events(after=after, types=types, sandbox_id=self.id, follow=follow):
            yield event

    def logs(self, *, stream: str = "both", tail: Optional[int] = None, follow: bool = False) -> Iterator[LogLine]:
        """What its commands wrote, by lines."""
        params: Dict[str, str] = {"stream": stream}
        if tail is not None:
            params["tail"] = str(tail)
        if not follow:
            text = self.client.request("GET", wire.sandbox_path(self.id, "logs"), params=params)
            for line in text.decode("utf-8", "replace").split("\n"):
                if line:
                    yield LogLine(line)
            return
        response = self.client.open(
            "GET", wire.sandbox_path(self.id, "logs"), params={**params, "follow": "1"})
        try:
            for name, data in self.client.events_of(response):
                if name == "line":
                    got = take(LogLine, wire.event_object(data))
                    yield LogLine(got.line.rstrip("\n"), got.stream, got.exec_id)
                elif name == "error":
                    wire.Follower().event(name, data)
        except httpx.TransportError as err:
            raise wire.transport_error(err, "logs") from err
        finally:
            response.close()

    def ports(self) -> List[Port]:
        """TCP ports that something listens on inside."""
        got = self._json("GET", "ports")
        if isinstance(got, dict):
            got = got.get("ports")
        return [Port(one) if isinstance(one, int) else take(Port, one) for one in got or []]

    def preview_url(self, port: int, path: str = "/") -> str:
        """Where HTTP and WebSocket of a port inside are reached: through the
        daemon, with the same token. Nothing listens on the host for it."""
        if not 0 < port < 65536:
            raise ValueError(f"{port} is not a port")
        return self.client.config.url + wire.sandbox_path(self.id, "proxy", str(port)) + "/" + path.lstrip("/")

    # Context.

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], err: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        if self.info.persistent:
            if self._owns_client:
                self.client.close()
            return
        try:
            self.kill()
        except errors.BermError as failed:
            # Neither may hide what went wrong in the block: the ttl ends it anyway.
            if err is None and not isinstance(failed, errors.NotFoundError):
                raise
            if not isinstance(failed, errors.NotFoundError):
                warnings.warn(f"sandbox {self.id} could not be ended: {failed}", RuntimeWarning, stacklevel=2)

    def _again(self) -> wire.Retry:
        return wire.Retry(self.client.retry_seconds, safe=True)

    def _json(self, method: str, *rest: str, **more: Any) -> Any:
        return self.client.json(method, wire.sandbox_path(self.id, *rest), **more)


class Commands:
    """Another name for exec."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run(self, cmd: wire.Command, timeout: Optional[float] = None, **more: Any) -> ExecResult:
        """:meth:`Sandbox.exec`, with ``timeout`` for ``timeout_seconds``."""
        return self._sandbox.exec(cmd, timeout_seconds=timeout, **more)


def _client(client: Optional["Client"]) -> Tuple["Client", bool]:
    """The client to use, and whether the sandbox has it for itself."""
    if client is not None:
        return client, False
    from .client import Client

    made, owns = io.shared(resolve())
    return (Client() if made is None else made), owns

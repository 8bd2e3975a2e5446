"""The parts of the protocol that do no I/O: what goes into a request, what
comes out of a stream, when to try again. Both flavours of the client use it."""

from __future__ import annotations

import base64
import codecs
import json
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote

import httpx

from . import errors
from .models import ExecResult, Limits, OutputChunk, Truncated

#: What an answer that is held in memory may have, as sent.
MAX_ANSWER = 64 << 20
#: One event of a stream; the daemon's are far smaller.
MAX_EVENT = 4 << 20
#: Kept per stream of a command whose output is followed: its first and last half.
KEEP_OUTPUT = 1 << 20

Command = Union[str, Sequence[str]]


def new_exec_id() -> str:
    return "x" + secrets.token_hex(16)


def new_key() -> str:
    return secrets.token_hex(16)


def sandbox_path(sandbox_id: str, *rest: str) -> str:
    """The path of a sandbox's route; an id with another shape never leaves."""
    if not (sandbox_id.isascii() and sandbox_id.isalnum() and len(sandbox_id) <= 64):
        raise errors.NotFoundError(f"{sandbox_id!r} is not a sandbox id", code="sandbox.not-found", status=404)
    return "/v1/sandboxes/" + "/".join((sandbox_id, *(quote(r, safe="") for r in rest)))


def template_path(name: str, *rest: str) -> str:
    """The path of a template's route; a slash in its name is escaped."""
    if not name or len(name) > 128 or not name.strip("."):
        raise errors.NotFoundError(f"{name!r} is not the name of a template", code="template.not-found", status=404)
    return "/v1/templates/" + "/".join(quote(part, safe="") for part in (name, *rest))


def build_path(build_id: str, *rest: str) -> str:
    if not (build_id.isascii() and build_id.isalnum() and len(build_id) <= 64):
        raise errors.NotFoundError(f"{build_id!r} is not the id of a build", code="template.build-not-found", status=404)
    return "/v1/templates/builds/" + "/".join((build_id, *rest))


def build_body(**what: Any) -> Dict[str, Any]:
    """The body of a build: a key only where the caller said something."""
    return {k: v for k, v in what.items() if v}


def part(boundary: str, name: str, kind: str) -> bytes:
    """What stands before a file of a form."""
    return (f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
            f"Content-Type: {kind}\r\n\r\n").encode()


def encode_json(value: Any) -> bytes:
    return json.dumps(value).encode()


Rules = Sequence[Union[str, Mapping[str, Any]]]


def rules(egress: Rules) -> List[Dict[str, Any]]:
    """An egress document; a string is what ``allow`` of a rule takes."""
    if isinstance(egress, (str, bytes, Mapping)):
        raise TypeError("egress is a list of rules, such as ['example.org:443']")
    return [{"allow": rule} if isinstance(rule, str) else dict(rule) for rule in egress]


def create_body(
    *,
    template: Optional[str],
    limits: Union[Limits, Mapping[str, Any], None],
    metadata: Optional[Mapping[str, str]],
    tags: Optional[Mapping[str, str]],
    env: Optional[Mapping[str, str]],
    egress: Optional[Rules],
    **plain: Any,
) -> Dict[str, Any]:
    """The body of a create: a key only where the caller said something."""
    body: Dict[str, Any] = {k: v for k, v in plain.items() if v is not None and v is not False}
    if template:
        body["template"] = template
    if isinstance(limits, Limits):
        limits = limits.wire()
    if limits:
        body["limits"] = dict(limits)
    if metadata:
        body["metadata"] = {k: str(v) for k, v in metadata.items()}
    if tags:
        body["tags"] = {k: str(v) for k, v in tags.items()}
    if env:
        body["env"] = dict(env)
    if egress is not None:
        body["egress"] = rules(egress)
    return body


def exec_body(
    cmd: Command,
    *,
    env: Optional[Mapping[str, str]] = None,
    input: Union[str, bytes, None] = None,
    **plain: Any,
) -> Dict[str, Any]:
    """The body of an exec. A string runs under ``sh -c``, a list as it is."""
    body: Dict[str, Any] = {k: v for k, v in plain.items() if v is not None and v is not False}
    if isinstance(cmd, str):
        body["cmd"] = cmd
    else:
        body["args"] = [str(a) for a in cmd]
    if env:
        body["env"] = dict(env)
    if input is not None:
        body["input"] = input if isinstance(input, str) else input.decode("utf-8")
    return body


def switch(on: bool) -> str:
    return "1" if on else "0"


def decode_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")[:2000]


def answer_error(response: httpx.Response, body: bytes) -> errors.BermError:
    return errors.for_answer(
        response.status_code, decode_json(body),
        request_id=response.headers.get("x-request-id", ""),
        retry_after=retry_after(response.headers.get("retry-after")),
    )


def retry_after(value: Optional[str]) -> Optional[float]:
    """Seconds of a Retry-After; its date form is nothing that Berm sends."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 3600 else None


def transport_error(err: Exception, what: str) -> errors.BermError:
    if isinstance(err, httpx.TimeoutException):
        return errors.TimeoutError(f"{what}: no answer in time ({type(err).__name__})", code="client.timeout")
    return errors.ConnectionError(f"{what}: {err or type(err).__name__}", code="client.connection")


@dataclass
class Retry:
    """When a request goes out again. Which failures are safe to repeat depends
    on the request: ``safe`` ones carry an id or key that makes a second copy
    harmless, or change nothing."""

    budget: float  # seconds from the first try to the last
    safe: bool  # may be repeated after it may have arrived
    capacity: bool = False  # wait for room: 429 and 503 with a hint, 507
    tries: int = 0
    arrived: bool = False  # an earlier try may have been carried out
    began: float = field(default_factory=time.monotonic)

    def after(self, err: Exception) -> Optional[float]:
        """Seconds to wait before the next try; None to give up."""
        hint: Optional[float] = None
        if isinstance(err, httpx.TransportError):
            never_sent = isinstance(err, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
            self.arrived = self.arrived or not never_sent
            if not (never_sent or self.safe) or isinstance(err, (httpx.UnsupportedProtocol, httpx.ReadTimeout)):
                return None
        elif isinstance(err, errors.CapacityError) and err.code == "daemon.stopping":
            hint = err.retry_after
        elif self.capacity and isinstance(err, errors.QuotaError) and err.retry_after is not None:
            hint = err.retry_after
        elif self.capacity and isinstance(err, errors.CapacityError) and (err.status == 507 or err.retry_after is not None):
            hint = err.retry_after
        else:
            return None
        wait: float = (hint or 0.0) + random.uniform(0.5, 1) * min(2.0, 0.1 * 2.0**self.tries)
        if time.monotonic() - self.began + wait > self.budget:
            return None
        self.tries += 1
        return wait


class Events:
    """Cuts a byte stream into server-sent events: ``(name, data)``."""

    def __init__(self) -> None:
        self._buffer = b""
        self._name = ""
        self._data: List[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Tuple[str, str]]:
        self._buffer += piece
        if b"\n" not in piece:
            if len(self._buffer) > MAX_EVENT:
                raise errors.ServerError("a line of the stream is longer than any should be", code="client.stream")
            return
        *lines, self._buffer = self._buffer.split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if not line:
                if self._data:
                    yield self._name or "message", "\n".join(self._data)
                elif self._name:
                    yield self._name, ""
                self._name, self._data, self._size = "", [], 0
                continue
            key, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if key == "event":
                self._name = value
            elif key == "data":
                self._size += len(value)
                if self._size > MAX_EVENT:
                    raise errors.ServerError("an event of the stream is larger than any should be", code="client.stream")
                self._data.append(value)


def event_object(data: str) -> Dict[str, Any]:
    try:
        got = json.loads(data)
    except ValueError:
        got = None
    if not isinstance(got, dict):
        raise errors.ServerError("an event of the stream is not a JSON object", code="client.stream")
    return got


class Follower:
    """Turns the events of a command's output into chunks, and knows where to
    go on after a break."""

    def __init__(self, offset: int = 0) -> None:
        self.next = offset
        self.result: Optional[Mapping[str, Any]] = None
        self.over = False  # the stream has told all it will
        self._decoders: Dict[str, codecs.IncrementalDecoder] = {}

    def event(self, name: str, data: str) -> Optional[OutputChunk]:
        if name == "chunk":
            return self._chunk(event_object(data))
        if name == "exit":
            got = event_object(data)
            self.over = True
            end = got.get("result")
            if isinstance(end, dict):  # without it the command still runs, and was not followed
                if not isinstance(end.get("exit_code"), int):
                    raise errors.ServerError("the end of the stream has no exit code", code="client.stream")
                self.result = {"exec_id": got.get("exec_id", ""), **end}
        elif name == "error":
            got = event_object(data)
            raise errors.for_answer(500 if not got.get("code") else _status(str(got["code"])), got)
        return None

    def _chunk(self, got: Mapping[str, Any]) -> Optional[OutputChunk]:
        stream, offset = str(got.get("stream")), int(got.get("offset") or 0)
        data, gap = base64.b64decode(got.get("data") or ""), int(got.get("gap") or 0)
        if stream not in ("stdout", "stderr"):
            return None
        if offset < self.next:  # sent again after a break: only what is new
            data, offset, gap = data[self.next - offset:], self.next, 0
            if not data:
                return None
        self.next = offset + len(data)
        return OutputChunk(stream, data, offset, gap, self._decoder(stream).decode(data))

    def _decoder(self, stream: str) -> codecs.IncrementalDecoder:
        if stream not in self._decoders:
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[stream]

    def rest(self) -> Iterator[OutputChunk]:
        """What is left of a character that never became whole."""
        for stream, decoder in self._decoders.items():
            text = decoder.decode(b"", final=True)
            if text:
                yield OutputChunk(stream, b"", self.next, 0, text)


_STATUS = {
    "sandbox.not-found": 404, "exec.not-found": 404, "file.not-found": 404, "sandbox.ended": 410,
    "sandbox.paused": 409, "sandbox.state": 409, "exec.conflict": 409, "session.conflict": 409,
    "request.invalid": 400, "file.refused": 403, "feature.unavailable": 501, "daemon.stopping": 503,
    "guest.silent": 504, "audit.failed": 503,
}


def _status(code: str) -> int:
    return _STATUS.get(code, 500)


class Kept:
    """Output held in a bound: the first and the last half, the middle dropped."""

    def __init__(self, limit: int = KEEP_OUTPUT) -> None:
        self._half = self._most = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    def add(self, data: bytes, gap: int = 0) -> None:
        room = self._half - len(self._head)
        if gap:
            self.dropped += gap
            self._half, room = len(self._head), 0  # what comes now follows a hole
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        over = len(self._tail) - self._most
        if over > 0:
            del self._tail[:over]
            self.dropped += over

    def bytes(self) -> bytes:
        return bytes(self._head + self._tail)


class Collector:
    """What a followed command wrote, as the result of an exec has it."""

    def __init__(self, limit: int = KEEP_OUTPUT) -> None:
        self._kept = {"stdout": Kept(limit), "stderr": Kept(limit)}

    def add(self, chunk: OutputChunk) -> None:
        self._kept[chunk.stream].add(chunk.data, chunk.gap)

    def text(self, stream: str) -> str:
        return self._kept[stream].bytes().decode("utf-8", "replace")

    def result(self, end: Mapping[str, Any]) -> ExecResult:
        out, err = self._kept["stdout"], self._kept["stderr"]
        return ExecResult.of(
            end, out.bytes(), err.bytes(),
            Truncated(out.dropped > 0, err.dropped > 0, out.dropped + err.dropped),
        )


def checked(result: ExecResult, cmd: Command, check: bool) -> ExecResult:
    """The result, or with ``check`` an error for one that is not 0."""
    if not check or result.ok:
        return result
    shown = cmd if isinstance(cmd, str) else " ".join(cmd)
    if len(shown) > 200:
        shown = shown[:197] + "..."
    if result.timed_out:
        raise errors.CommandTimeout(f"time ended the command: {shown}", result)
    why = "" if result.ending == "exit" else f" ({result.ending})"
    raise errors.CommandFailed(f"the command ended with {result.exit_code}{why}: {shown}", result)

"""The nouns of the API as dataclasses. Fields that a daemon adds later are
kept in ``raw`` where there is one, and ignored elsewhere."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, TypeVar

T = TypeVar("T")

__all__ = [
    "Build", "Denial", "EgressState", "Event", "ExecInfo", "ExecResult", "FileEvent", "FileInfo", "Lifecycle", "Limits",
    "LogLine", "Metrics", "OutputChunk", "Port", "SandboxInfo", "Template", "Truncated", "Written",
]


def take(cls: Type[T], data: Any) -> T:
    """A dataclass from a decoded answer: known fields by name, null as absent."""
    if not isinstance(data, Mapping):
        data = {}
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    got = {k: v for k, v in data.items() if k in known and v is not None}
    if "raw" in known:
        got["raw"] = dict(data)
    return cls(**got)


@dataclass(frozen=True)
class Limits:
    """Caps of a sandbox and of each exec in it. 0 is the default, -1 means that
    nothing enforces that cap; a daemon may refuse that."""

    timeout_seconds: float = 0
    memory_bytes: int = 0
    cpus: float = 0
    pids: int = 0
    disk_bytes: int = 0
    output_bytes: int = 0

    def wire(self) -> Dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v}


@dataclass(frozen=True)
class Truncated:
    """What the answer leaves out of the output: the middle, never the ends."""

    stdout: bool = False
    stderr: bool = False
    dropped_bytes: int = 0

    def __bool__(self) -> bool:
        return self.stdout or self.stderr


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and what it wrote.

    ``exit_code`` is the program's own; 128+n for signal n; 124 when time ended
    it; 137 for memory; 123 for another cap; 126 or 127 when it could not start.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    ending: str = "exit"
    timed_out: bool = False
    exec_id: str = ""
    truncated: Truncated = Truncated()
    caps_hit: Tuple[str, ...] = ()
    not_started: str = ""
    reason: str = ""
    duration_ms: int = 0
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    #: The bytes as they were. Text has invalid UTF-8 replaced.
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        """Ended by itself with 0."""
        return self.exit_code == 0 and self.ending == "exit"

    @classmethod
    def of(cls, data: Mapping[str, Any], stdout: Optional[bytes] = None, stderr: Optional[bytes] = None,
           truncated: Optional[Truncated] = None) -> "ExecResult":
        """From an answer; with ``stdout`` and ``stderr`` where they came apart."""
        code = data.get("exit_code")
        if not isinstance(code, int) or isinstance(code, bool):
            raise ValueError("an answer without exit_code says nothing about the command")
        out, out_text = _stream(data, "stdout", stdout)
        err, err_text = _stream(data, "stderr", stderr)
        timings = data.get("timings_ms") or {}
        ending = str(data.get("ending") or "exit")
        return cls(
            exit_code=code, stdout=out_text, stderr=err_text, stdout_bytes=out, stderr_bytes=err,
            ending=ending, timed_out=bool(data.get("timed_out", ending == "timeout")),
            exec_id=str(data.get("exec_id") or ""),
            truncated=truncated or take(Truncated, data.get("truncated")),
            caps_hit=tuple(data.get("caps_hit") or ()), not_started=str(data.get("not_started") or ""),
            reason=str(data.get("reason") or ""), duration_ms=int(data.get("duration_ms") or timings.get("exec") or 0),
            timings_ms=dict(timings),
        )


def _stream(data: Mapping[str, Any], name: str, apart: Optional[bytes]) -> Tuple[bytes, str]:
    if apart is not None:
        return apart, apart.decode("utf-8", "replace")
    text = str(data.get(name) or "")
    coded = data.get(name + "_base64")
    return (base64.b64decode(coded) if coded else text.encode("utf-8", "surrogatepass")), text


@dataclass(frozen=True)
class OutputChunk:
    """A piece of a command's output. ``offset`` counts the bytes of both
    streams before it; ``gap`` bytes just before it are no longer kept."""

    stream: str
    data: bytes
    offset: int = 0
    gap: int = 0
    #: ``data`` as text. A character that two chunks share is in the second.
    text: str = ""


@dataclass(frozen=True)
class ExecInfo:
    """A command of a sandbox, running or not."""

    exec_id: str
    sandbox_id: str = ""
    args: List[str] = field(default_factory=list)
    state: str = ""
    detached: bool = False
    kept: bool = False  # its output can be read from the start
    user: str = ""
    cwd: str = ""
    timeout_seconds: float = 0
    started_at: str = ""
    output_bytes: int = 0
    result: Optional[ExecResult] = None

    @property
    def running(self) -> bool:
        return self.state != "ended"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ExecInfo":
        plain = {k: v for k, v in data.items() if k != "result"}
        made = take(cls, plain)
        end = data.get("result")
        if isinstance(end, Mapping):
            object.__setattr__(made, "result", ExecResult.of({"exec_id": made.exec_id, **end}))
        return made


@dataclass(frozen=True)
class FileInfo:
    """An entry inside a sandbox."""

    name: str
    path: str = ""
    is_dir: bool = False
    size: int = 0
    mode: str = ""
    mtime: int = 0
    kind: str = ""
    perm: int = 0


@dataclass(frozen=True)
class Written:
    """How much was written where."""

    path: str
    bytes: int = 0


@dataclass(frozen=True)
class FileEvent:
    """A change below a watched directory. ``lost`` means: look again."""

    op: str
    path: str = ""


@dataclass(frozen=True)
class LogLine:
    line: str
    stream: str = ""
    exec_id: str = ""


@dataclass(frozen=True)
class Port:
    """A TCP port that something listens on inside."""

    port: int
    listening: bool = True
    source: str = ""
    proxy_url: str = ""


@dataclass(frozen=True)
class Lifecycle:
    """What ends a sandbox by time."""

    ttl_seconds: float = 0
    persistent: bool = False
    idle_seconds: float = 0
    idle_timeout_seconds: float = 0
    expires_at: str = ""


@dataclass(frozen=True)
class Metrics:
    """What a sandbox uses now, seen from outside."""

    sandbox_id: str = ""
    state: str = ""
    uptime_seconds: float = 0
    cpu_seconds: float = 0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    host_tasks: int = 0
    disk_bytes: int = 0
    running_execs: int = 0
    host_cpu_percent: float = 0


@dataclass(frozen=True)
class Denial:
    kind: str = ""
    target: str = ""
    rule: str = ""
    reason: str = ""
    fix: str = ""
    code: str = ""


@dataclass(frozen=True)
class EgressState:
    """What a sandbox may reach, and what it has."""

    link: bool = False  # False: there is no link at all, and none can be added
    egress: List[Mapping[str, Any]] = field(default_factory=list)  # in force
    learn: bool = False
    egress_bytes: int = 0  # out of the sandbox
    ingress_bytes: int = 0
    hosts: List[str] = field(default_factory=list)  # reached
    denied: List[Denial] = field(default_factory=list)  # each once
    faults: List[str] = field(default_factory=list)  # allowed, and not to be had: "target: why"
    wanted: List[str] = field(default_factory=list)  # with learn: strings for egress
    truncated: bool = False  # lists were cut at their bound

    @classmethod
    def of(cls, got: Any) -> "EgressState":
        state = take(cls, got)
        return replace(state, denied=[take(Denial, one) for one in state.denied])


@dataclass(frozen=True)
class Event:
    """A line of the audit log."""

    id: str = ""
    seq: int = 0
    time: str = ""
    type: str = ""
    tenant: str = ""
    actor: str = ""
    sandbox_id: str = ""
    run_id: str = ""
    session: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as its owner sees it."""

    sandbox_id: str = ""
    state: str = ""
    status: str = ""
    template: str = ""
    template_resolved: str = ""
    isolation: str = ""
    boundary: str = ""
    session: str = ""
    tenant: str = ""
    persistent: bool = False
    ttl_seconds: float = 0
    idle_timeout_seconds: float = 0
    created_at: str = ""
    expires_at: str = ""
    ended_at: str = ""
    ending: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    egress: Optional[List[Mapping[str, Any]]] = None  # in force; None: no link at all
    limits: Mapping[str, Any] = field(default_factory=dict)
    host_facts_weakening: List[str] = field(default_factory=list)
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Template:
    """What sandboxes start from."""

    name: str = ""
    resolved: str = ""  # where the name stands for another
    source: str = ""  # an image reference with its digest, or host, directory, archive, build
    digest: str = ""
    platform: str = ""
    size_bytes: int = 0
    created_at: str = ""
    root: bool = False  # commands may be root, inside
    config: Mapping[str, Any] = field(default_factory=dict)  # env, user, workdir, entrypoint, cmd
    layers: List[Mapping[str, Any]] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)  # what it has not of what it was made from
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Build:
    """The making of a template."""

    id: str = ""
    name: str = ""
    status: str = ""  # queued, running, done, failed
    error: str = ""
    code: str = ""
    hint: str = ""
    started_at: str = ""
    ended_at: str = ""
    progress: Optional[Mapping[str, Any]] = None
    template: Optional[Mapping[str, Any]] = None  # once done
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

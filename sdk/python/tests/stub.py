"""A daemon of paper: the wire of the API over dictionaries, with faults on
order. It runs nothing; its few commands are pretended."""

from __future__ import annotations

import base64
import io
import json
import re
import secrets
import socket
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import parse_qsl, unquote, urlsplit

TOKEN = "e2b_" + "0" * 40


class Exec:
    """A pretended command: all it will write, and its end."""

    def __init__(self, sid: str, req: Dict[str, Any], files: Dict[str, bytes]) -> None:
        self.id = req.get("exec_id") or "x" + secrets.token_hex(16)
        self.sid, self.req = sid, req
        self.chunks: List[Tuple[str, bytes]] = []
        self.code, self.ending = 0, "exit"
        self.killed, self.signals, self.stdin = False, [], b""
        self.running = False
        cmd = req.get("cmd") or " ".join(req["args"])
        word, _, rest = cmd.partition(" ")
        if word == "echo":
            self.chunks.append(("stdout", rest.encode() + b"\n"))
        elif word == "warn":
            self.chunks.append(("stderr", rest.encode() + b"\n"))
        elif word == "exit":
            self.code = int(rest)
        elif word == "bytes":
            self.chunks.append(("stdout", b"a\xffb\xc3"))
        elif word == "count":
            self.chunks += [("stdout", b"%d\n" % i) for i in range(int(rest))]
        elif word == "utf8":
            self.chunks += [("stdout", b"\xc3"), ("stdout", b"\xa5"), ("stdout", "\u2028\x85".encode())]
        elif word == "slow":
            self.code, self.ending = 124, "timeout"
            self.chunks.append(("stdout", b"part\n"))
        elif word == "cat":
            self.chunks.append(("stdout", str(req.get("input", "")).encode()))
        elif word == "env":
            self.chunks += [("stdout", f"{k}={v}\n".encode()) for k, v in (req.get("env") or {}).items()]
        elif word == "python3":
            self.chunks.append(("stdout", files.get(rest, b"")))

    def result(self) -> Dict[str, Any]:
        return {"exec_id": self.id, "exit_code": self.code, "ending": self.ending,
                "caps_hit": ["timeout"] if self.ending == "timeout" else [], "timings_ms": {"exec": 3.5}}

    def answer(self) -> Dict[str, Any]:
        out = {"stdout": b"", "stderr": b""}
        for stream, data in self.chunks:
            out[stream] += data
        body: Dict[str, Any] = {**self.result(), "timed_out": self.ending == "timeout", "duration_ms": 3,
                                "truncated": {"stdout": False, "stderr": False, "dropped_bytes": 0}}
        for name, data in out.items():
            text = data.decode("utf-8", "replace")
            body[name] = text
            if text.encode() != data:
                body[name + "_base64"] = base64.b64encode(data).decode()
        return body

    def info(self) -> Dict[str, Any]:
        ended = {} if self.running else {"result": self.result()}
        return {**ended, "exec_id": self.id, "sandbox_id": self.sid, "args": self.req.get("args") or ["sh", "-c", self.req["cmd"]],
                "state": "running" if self.running else "ended", "detached": True, "timeout_seconds": 30, "started_at": "2026-01-01T00:00:00Z",
                "output_bytes": sum(len(d) for _, d in self.chunks)}


class Stub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.sandboxes: Dict[str, Dict[str, Any]] = {}
        self.files: Dict[str, Dict[str, bytes]] = {}
        self.execs: Dict[str, Exec] = {}
        self.keys: Dict[str, str] = {}
        self.templates: Dict[str, Dict[str, Any]] = {"host": {"name": "host", "size_bytes": 1, "source": "host"}}
        self.archives: Dict[str, bytes] = {}
        self.builds: Dict[str, Dict[str, Any]] = {}
        self.runs: Dict[str, int] = {}  # how often each exec id was executed
        self.seen: List[Tuple[str, str, Dict[str, str], bytes]] = []
        self.faults: List[Tuple[str, Callable[["Handler"], Optional[str]]]] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def fault(self, where: str, what: Any, times: int = 1) -> None:
        """`what` for the next requests whose "METHOD path" matches: "drop" (nothing
        is done), "lose" (done, not answered), ("cut", n) after n events, or
        ("stop", n) with an error after n events, or (status, headers, body)."""
        self.faults += [(where, what)] * times

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.handle_one()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def handle_one(self) -> None:
        body = self._body()
        path = urlsplit(self.path).path
        self.query = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        self.cut: Optional[int] = None
        self.lose = self.stop = False
        for i, (where, what) in enumerate(self.server.faults):
            if re.fullmatch(where, f"{self.command} {path}"):
                del self.server.faults[i]
                if what == "drop":
                    return self._hang_up()
                if what == "lose":
                    self.lose = True
                elif what[0] in ("cut", "stop"):
                    self.cut, self.stop = what[1], what[0] == "stop"
                else:
                    status, headers, answer = what
                    return self._send(status, json.dumps(answer).encode(), headers=headers)
                break
        if self.headers.get("Authorization") != "Bearer " + TOKEN:
            return self._error(401, "token.invalid", "the token is not known")
        self._route(path, body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            got = b""
            while True:
                size = int(self.rfile.readline().strip() or b"0", 16)
                got += self.rfile.read(size)
                self.rfile.readline()
                if not size:
                    return got
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: bytes, kind: str = "application/json", headers: Optional[Dict[str, str]] = None) -> None:
        if self.lose:
            return self._hang_up()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", "q" + "1" * 32)
        for k, v in (headers or {}).items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body if status != 204 else b"")

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode() + b"\n")

    def _error(self, status: int, code: str, text: str) -> None:
        self._json(status, {"error": text, "code": code, "hint": "", "request_id": "q" + "1" * 32})

    def _sse(self, events: List[Tuple[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n, (name, data) in enumerate(events):
            if self.cut == n and not self.stop:
                return self._hang_up()
            if self.cut == n:
                name, data = "error", {"error": "about to stop", "code": "daemon.stopping"}
            text = f": beat\nevent: {name}\n" + (f"data: {json.dumps(data)}\n" if data is not None else "") + "\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text.encode()))
            self.wfile.flush()
            if name == "error":
                break
        self.wfile.write(b"0\r\n\r\n")

    def _route(self, path: str, body: bytes) -> None:
        s = self.server
        if path == "/v1/sandboxes" and self.command == "POST":
            return self._create(json.loads(body))
        if path == "/v1/sandboxes":
            return self._json(200, [b for b in s.sandboxes.values() if b["state"] != "ended"])
        if path == "/v1/version":
            return self._json(200, {"version": "stub", "go": "none", "os": "paper", "arch": "a4"})
        if path == "/v1/events":
            after, all_ = int(self.query.get("after", 0)), range(1, 8)
            got = [{"id": f"e{i}", "seq": i, "type": "exec.started", "tags": {}, "data": {}} for i in all_ if i > after][:3]
            return self._json(200, {"events": got, "next": got[-1]["seq"] if got else after})
        if path.startswith("/v1/templates"):
            return self._templates(path[len("/v1/templates"):].strip("/"), body)
        m = re.fullmatch(r"/v1/sandboxes/([a-z0-9]+)(?:/(.*))?", path)
        if not m:
            return self._error(404, "request.no-route", "no such route")
        box, rest = s.sandboxes.get(m[1]), m[2] or ""
        if box is None:
            return self._error(404, "sandbox.not-found", "no such sandbox")
        if rest == "" and self.command == "DELETE":
            box["state"], box["status"] = "ended", "deleted"
            return self._send(204, b"")
        if rest == "":
            return self._json(200, box)
        if box["state"] == "ended":
            return self._error(410, "sandbox.ended", "the sandbox has ended")
        if rest in ("pause", "resume"):
            box["state"] = box["status"] = {"pause": "paused", "resume": "running"}[rest]
            return self._send(204, b"")
        if rest == "lifecycle":
            if self.command == "PATCH":
                box.update(json.loads(body))
            return self._json(200, {"ttl_seconds": box["ttl_seconds"], "persistent": box["persistent"], "idle_seconds": 1})
        if rest == "egress":
            if self.command == "PATCH":
                if "egress" not in box:
                    return self._error(409, "egress.no-link", "it was created without egress")
                rules = json.loads(body)["egress"]
                if any(rule not in box["egress"] for rule in rules):
                    return self._error(403, "policy.wider", "only an operator widens")
                box["egress"] = rules
            return self._json(200, {
                "link": "egress" in box, **({"egress": box["egress"]} if "egress" in box else {}), "egress_bytes": 5,
                "ingress_bytes": 7, "hosts": ["a.test:443"], "truncated": False, "new": 1, "wanted": ["b.test:80"],
                "denied": [{"kind": "egress", "target": "b.test:80", "rule": "end", "reason": "no", "fix": "b.test:80", "new": 1}]})
        if rest == "snapshots":
            return self._error(501, "feature.unavailable", "snapshots are not there yet")
        if rest == "ports":
            return self._json(200, [{"port": 8000, "listening": True, "source": "detected", "proxy_url": "/x"}])
        if rest == "logs":
            if self.query.get("follow"):
                return self._sse([("open", None), ("line", {"line": "one\n"}), ("line", {"line": "two\n"})])
            return self._send(200, "one\ntw\u00f6\n".encode(), "text/plain; charset=utf-8")
        if rest.startswith("exec"):
            return self._exec(m[1], box, rest, body)
        return self._files(s.files[m[1]], rest, body)

    def _templates(self, rest: str, body: bytes) -> None:
        s = self.server
        if rest == "":
            return self._json(200, list(s.templates.values()))
        if rest == "import":
            return self._keep(self.query["name"], self.query.get("replace"), body, 201, {"user": self.query.get("user", "")})
        if rest in ("pull", "build"):
            req = json.loads(body) if not body.startswith(b"--") else json.loads(body.split(b"\r\n\r\n")[1].split(b"\r\n")[0])
            name = req.get("name") or req.get("image_ref") or req["recipe"]
            build = {"id": "b" + secrets.token_hex(16), "name": name, "status": "running", "looks": 2, "asked": req, "body": body}
            s.builds[build["id"]] = build
            return self._json(202, {k: v for k, v in build.items() if k != "body"})
        if rest == "builds":
            return self._json(200, [{k: v for k, v in b.items() if k != "body"} for b in s.builds.values()])
        if rest.startswith("builds/"):
            build = s.builds.get(rest.split("/")[1])
            if build is None:
                return self._error(404, "template.build-not-found", "no such build")
            if rest.endswith("/logs"):
                return self._lines(["step 1/2", "step 2/2: caf\u00e9"])
            if self.command == "DELETE":
                build["status"] = "failed"
                return self._send(204, b"")
            build["looks"] -= 1
            if build["looks"] == 0 and build["name"].startswith("fail"):
                build.update(status="failed", error="step 1: exit status 7", code="template.build-failed", hint="see the lines")
            elif build["looks"] == 0:
                build.update(status="done", template={"name": build["name"], "source": "build"})
            return self._json(200, {k: v for k, v in build.items() if k != "body"})
        name = unquote(rest.split("/")[0])
        if name not in s.templates:
            return self._error(404, "template.not-found", "no such template")
        if rest.endswith("/export"):
            return self._send(200, s.archives[name], "application/x-tar")
        if self.command == "DELETE":
            del s.templates[name]
            return self._send(204, b"")
        self._json(200, s.templates[name])

    def _keep(self, name: str, replace: Any, archive: bytes, status: int, config: Dict[str, Any]) -> None:
        s = self.server
        if name in s.templates and not replace:
            return self._error(409, "template.exists", "there is one of that name")
        s.archives[name] = archive
        s.templates[name] = {"name": name, "size_bytes": len(archive), "source": "archive", "config": config, "root": config["user"] == "root"}
        self._json(status, s.templates[name])

    def _lines(self, lines: List[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n, line in enumerate([*lines, "end"]):
            if self.cut == n:
                return self._hang_up()
            text = f": beat\n\ndata: {line}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _create(self, req: Dict[str, Any]) -> None:
        s, key = self.server, self.headers.get("Idempotency-Key", "")
        if key in s.keys:
            return self._json(201, s.sandboxes[s.keys[key]])
        if req.get("template") == "none":
            return self._error(404, "template.not-found", "no such template")
        sid = "s" + secrets.token_hex(16)
        tags = {**req.get("metadata", {}), **req.get("tags", {})}
        s.keys[key] = sid
        s.files[sid] = {}
        s.sandboxes[sid] = {
            "sandbox_id": sid, "id": sid, "state": "running", "status": "running", "template": req.get("template", "host"),
            "isolation": "gvisor", "boundary": "user-kernel", "tags": tags, "metadata": tags, "limits": req.get("limits", {}),
            "persistent": req.get("persistent", False), "ttl_seconds": req.get("ttl_seconds", 3600), "asked": req, "new": 1,
            **({"egress": req["egress"]} if "egress" in req else {})}
        self._json(201, s.sandboxes[sid])

    def _exec(self, sid: str, box: Dict[str, Any], rest: str, body: bytes) -> None:
        s = self.server
        parts = rest.split("/")
        if parts[0] == "exec":
            req = json.loads(body)
            ran = s.execs.get(req.get("exec_id", ""))
            if ran is None:
                if box["state"] == "paused":
                    return self._error(409, "sandbox.paused", "the sandbox is paused")
                ran = Exec(sid, req, s.files[sid])
                s.execs[ran.id] = ran
                s.runs[ran.id] = s.runs.get(ran.id, 0) + 1
            if len(parts) > 1:
                return self._output(ran, 0)
            if req.get("detach"):
                return self._json(202, ran.info())
            return self._send(200, b" \n" + json.dumps(ran.answer()).encode())
        if len(parts) == 1:
            return self._json(200, {"execs": [e.info() for e in s.execs.values() if e.sid == sid]})
        ran = s.execs.get(parts[1])
        if ran is None:
            return self._error(404, "exec.not-found", "no such exec")
        what = parts[2] if len(parts) > 2 else ""
        if what == "output":
            return self._output(ran, int(self.query.get("offset", 0)))
        if what == "signal":
            ran.signals.append(json.loads(body)["signal"])
        elif what == "stdin":
            ran.stdin += body
            return self._json(200, {"bytes": len(body)})
        elif self.command == "DELETE":
            ran.killed = True
        else:
            return self._json(200, ran.info())
        self._send(204, b"")

    def _output(self, ran: Exec, offset: int) -> None:
        events: List[Tuple[str, Any]] = []
        at = 0
        for stream, data in ran.chunks:
            if at + len(data) > offset:
                skip = max(0, offset - at)
                events.append(("chunk", {"stream": stream, "offset": at + skip, "data": base64.b64encode(data[skip:]).decode()}))
            at += len(data)
        self._sse(events + [("exit", ran.info())])

    def _files(self, files: Dict[str, bytes], rest: str, body: bytes) -> None:
        path = self.query.get("path", "")
        here = path.rstrip("/") + "/"
        if rest == "fs" and self.command == "PUT":
            files[path] = body
            return self._json(200, {"path": path, "bytes": len(body)})
        if rest == "fs" and self.command == "DELETE":
            for name in [n for n in files if n == path or n.startswith(here)]:
                del files[name]
            return self._send(204, b"")
        if rest == "fs/move":
            move = json.loads(body)
            files[move["to"]] = files.pop(move["from"])
            return self._send(204, b"")
        if rest == "fs/dir" and self.command == "POST":
            files.setdefault(here + ".", b"")
            return self._send(204, b"")
        if rest == "fs/dir":
            names = sorted({n[len(here):].split("/")[0] for n in files if n.startswith(here)} - {"."})
            return self._json(200, {"path": path, "entries": [self._entry(files, here + n) for n in names]})
        if rest == "fs/watch":
            return self._sse([("ready", None), ("change", {"path": here + "a", "op": "create"})])
        if rest == "archive" and self.command == "PUT":
            with tarfile.open(fileobj=io.BytesIO(body)) as t:
                for m in t.getmembers():
                    got = t.extractfile(m)
                    if got:
                        files[here + m.name] = got.read()
            return self._send(204, b"")
        if rest == "archive":
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as t:
                for name, data in files.items():
                    if name.startswith(here):
                        info = tarfile.TarInfo(name[len(here):])
                        info.size, info.mtime = len(data), int(time.time())
                        t.addfile(info, io.BytesIO(data))
            return self._send(200, out.getvalue(), "application/x-tar")
        entry = self._entry(files, path)
        if entry is None:
            return self._error(404, "file.not-found", f"{path} does not exist")
        if rest == "fs/stat":
            return self._json(200, entry)
        if rest == "fs":
            return self._send(200, files[path], "application/octet-stream")
        self._error(404, "request.no-route", "no such route")

    def _entry(self, files: Dict[str, bytes], path: str) -> Any:
        folder = any(n.startswith(path.rstrip("/") + "/") for n in files)
        if path not in files and not folder:
            return None
        return {"name": path.rsplit("/", 1)[-1], "path": path, "is_dir": folder, "size": len(files.get(path, b"")),
                "mode": "d" if folder else "f", "mtime": 1700000000, "kind": "dir" if folder else "file", "perm": 420}

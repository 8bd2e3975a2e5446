"""Against a real daemon: BERM_URL and BERM_TOKEN."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import berm
from berm import Client, Limits, Sandbox

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def programs(daemon: Client) -> None:
    if "programs" not in os.environ.get("BERM_HAS", "programs"):
        pytest.skip("this server runs no programs")


@pytest.fixture
def box(daemon: Client) -> Iterator[Sandbox]:
    with daemon.create(ttl_seconds=300, tags={"run_id": "sdk-test"}) as made:
        yield made


def until(what: Callable[[], Any], seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while True:
        got = what()
        if got:
            return got
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.1)


def test_seed_with_only_the_import_changed(daemon: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ROOT / "sdk" / "compat" / "python" / "seed_step.py"
    if sys.version_info < (3, 10) or not source.exists():
        pytest.skip("the guide's annotations need Python 3.10")
    monkeypatch.setenv("BERM_URL", daemon.config.url)
    monkeypatch.setenv("BERM_TOKEN", daemon.config.token)
    text = source.read_text()
    assert text.count("from pandastack import Sandbox") == 1
    space: dict = {"_to_json": __import__("json").dumps}
    exec(text.replace("from pandastack import", "from berm import"), space)
    code = "import json; print(json.load(open('/run/creds.json'))['k'])"
    assert space["run_agent_step"](code, "r1", "s1", {"k": "v"}) == {"run": "r1", "exit_code": 0, "stdout": "v\n", "stderr": ""}
    berm.close_shared()


def test_exec(box: Sandbox) -> None:
    got = box.exec("echo out; echo err >&2; exit 3")
    assert (got.exit_code, got.stdout, got.stderr, got.ending) == (3, "out\n", "err\n", "exit")
    assert box.exec(["printf", "%s|", "a b", "$HOME"]).stdout == "a b|$HOME|"
    assert box.exec("cat", input="in").stdout == "in"
    assert box.exec("pwd; echo $A", cwd="/tmp", env={"A": "b"}).stdout == "/tmp\nb\n"
    assert box.exec("printf 'a\\377'").stdout_bytes == b"a\xff"
    late = box.exec("echo part; sleep 60", timeout_seconds=1)
    assert (late.exit_code, late.timed_out, late.stdout) == (124, True, "part\n")
    many = box.exec("head -c 5000000 /dev/zero")
    assert many.ok and many.truncated.stdout and many.truncated.dropped_bytes > 0
    assert box.run_code("print(sum(range(10)))").stdout == "45\n"


def test_stream(box: Sandbox) -> None:
    seen = []
    got = box.exec("seq 5; sleep 0.5; echo late", on_stdout=lambda text: seen.append((time.monotonic(), text)))
    assert got.ok and "".join(t for _, t in seen) == "1\n2\n3\n4\n5\nlate\n" and seen[-1][0] - seen[0][0] > 0.3
    digest = hashlib.sha256()
    stream = box.exec_stream("seq 500000")
    for chunk in stream:
        assert chunk.gap == 0
        digest.update(chunk.data)
    assert digest.hexdigest() == hashlib.sha256("".join(f"{i}\n" for i in range(1, 500001)).encode()).hexdigest()
    with box.exec_stream("echo on; sleep 60") as leave:
        next(leave)
    assert until(lambda: not box.process(leave.exec_id).info().running)
    assert box.exec("slow() { echo part; sleep 60; }; slow", timeout_seconds=1, on_stdout=print).timed_out


def test_background(box: Sandbox) -> None:
    p = box.spawn("read line; echo got $line; sleep 60", stdin=True)
    assert p.poll() is None
    p.write_stdin("it\n")
    assert until(lambda: b"got it\n" in b"".join(c.data for c in p.output(follow=False)))
    p.signal("TERM")
    end = p.wait()
    assert end.ending == "signal" and end.exit_code == 143 and end.stdout == "got it\n"
    again = box.process(p.exec_id)
    assert again.wait().stdout == "got it\n"
    q = box.spawn("setsid sleep 61 & sleep 61")
    q.kill()
    assert q.wait().ending == "killed"
    assert {e.exec_id for e in box.execs()} >= {p.exec_id, q.exec_id}


def test_once(box: Sandbox) -> None:
    """The same id twice executes once, at the same time too."""
    exec_id = "x" + os.urandom(16).hex()
    body = {"cmd": "echo x >> /tmp/count; sleep 0.3; cat /tmp/count", "exec_id": exec_id}
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(box.client.json("POST", f"/v1/sandboxes/{box.id}/exec", json=body)))
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [g["stdout"] for g in got] == ["x\n"] * 4


def test_files(box: Sandbox, tmp_path: Path) -> None:
    fs = box.filesystem
    fs.write("/workspace/a/b.txt", "h\xe9")
    assert fs.read_text("/workspace/a/b.txt") == "h\xe9" and fs.stat("/workspace/a/b.txt").size == 3
    fs.move("/workspace/a/b.txt", "/workspace/c.txt")
    assert not fs.exists("/workspace/a/b.txt") and [e.name for e in fs.list("/workspace")] == ["a", "c.txt"]
    local = tmp_path / "local"
    with open(local, "wb") as f:
        for i in range(64):
            f.write(os.urandom(1 << 20))
    fs.upload(local, "/workspace/big")
    assert fs.download("/workspace/big", tmp_path / "back") == 64 << 20
    assert hashlib.sha256((tmp_path / "back").read_bytes()).digest() == hashlib.sha256(local.read_bytes()).digest()
    fs.remove("/workspace/big")
    with pytest.raises(berm.NotFoundError):
        fs.read("/workspace/big")
    with pytest.raises(berm.BadRequestError):
        fs.read("relative")
    tar = io.BytesIO(b"".join(fs.read_tar("/workspace")))
    with tarfile.open(fileobj=tar) as t:
        assert any(n.endswith("c.txt") for n in t.getnames())
    tar.seek(0)
    fs.write_tar("/tmp/unpacked", tar)
    assert fs.walk("/tmp/unpacked").__next__()[0] == "/tmp/unpacked"


def test_watch(box: Sandbox) -> None:
    events = box.filesystem.watch("/workspace", recursive=True)
    assert next(events).op == "ready"
    box.filesystem.write("/workspace/seen", "x")
    assert next(e for e in events if e.path == "/workspace/seen")
    events.close()  # type: ignore[attr-defined]


def test_life(daemon: Client, box: Sandbox) -> None:
    assert box.set_ttl(500).ttl_seconds == 500
    assert box.set_persistent().persistent and box.refresh().persistent
    box.set_persistent(False)
    assert box.set_tags({"a": "b"})["a"] == "b"
    assert box.id in [b.id for b in daemon.list(tags={"a": "b"})]
    assert daemon.list(tags={"a": "no"}) == []
    box.pause()
    with pytest.raises(berm.SandboxPausedError):
        box.exec("true")
    box.resume()
    assert box.exec("true").ok
    assert box.metrics().memory_bytes > 0
    assert daemon.connect(box.id).info.isolation == box.info.isolation
    assert "exec.started" in {e.type for e in box.events()}
    assert box.report()["commands"]
    with daemon.create(limits=Limits(timeout_seconds=1), session="s9", ttl_seconds=60) as other:
        assert other.exec("sleep 30").timed_out
        with pytest.raises(berm.ConflictError):
            other.exec("true", session="another")
        other.kill()
        with pytest.raises(berm.SandboxEndedError):
            other.exec("true")


def test_ports(box: Sandbox) -> None:
    server = box.spawn("cd /workspace && echo page > index.html && exec python3 -m http.server 8090 --bind 127.0.0.1")
    assert until(lambda: 8090 in [p.port for p in box.ports()])
    path = box.preview_url(8090, "/index.html")[len(box.client.config.url):]
    assert box.client.request("GET", path) == b"page\n"
    server.kill()


def test_errors(daemon: Client) -> None:
    with pytest.raises(berm.NotFoundError) as missing:
        daemon.connect("s" + "0" * 32)
    assert missing.value.code == "sandbox.not-found" and missing.value.request_id
    with pytest.raises(berm.UnsupportedError):
        daemon.json("GET", "/v1/snapshots")
    with Client(daemon.config.url, "wrong") as other, pytest.raises(berm.AuthError):
        other.list()


def test_egress(daemon: Client, box: Sandbox) -> None:
    assert box.info.egress is None and not box.egress().link
    with pytest.raises(berm.ConflictError) as none:
        box.set_egress([])
    assert none.value.code == "egress.no-link" and none.value.hint
    with pytest.raises(berm.BadRequestError) as wrong:
        daemon.create(egress=["https://a.test/"])
    assert wrong.value.code == "policy.invalid" and wrong.value.hint
    with pytest.raises(berm.BadRequestError):
        daemon.create(egress=["a.test"], learn=True)
    made = daemon.json("POST", "/v1/tokens", json={"role": "agent", "ttl_seconds": 300})
    try:
        with Client(daemon.config.url, made["token"]) as agent, agent.create(ttl_seconds=120, egress=[]) as closed:
            state = closed.egress()
            assert (state.link, state.egress, state.hosts, state.denied) == (True, [], [], [])
            with pytest.raises(berm.ForbiddenError) as wider:
                closed.set_egress(["a.test:443"])
            assert wider.value.code == "policy.wider" and "a.test:443" in wider.value.hint
            assert closed.exec("echo hi").stdout == "hi\n"
            as_admin = daemon.connect(closed.id)
            assert as_admin.set_egress(["a.test:443"]).egress == [{"allow": "a.test:443"}]
            assert closed.refresh().egress == [{"allow": "a.test:443"}]
            closed.pause()
            assert closed.set_egress([]).egress == []
            closed.resume()
        assert daemon.connect(closed.id).egress().egress == []  # of one that has ended, too
    finally:
        daemon.json("DELETE", "/v1/tokens/" + made["info"]["token_id"])


def test_async(daemon: Client) -> None:
    async def body() -> None:
        async with berm.AsyncClient(daemon.config.url, daemon.config.token) as client, await client.create(ttl_seconds=120) as box:
            many = await asyncio.gather(*(box.exec(f"echo {i}") for i in range(16)))
            assert [r.stdout for r in many] == [f"{i}\n" for i in range(16)]
            p = await box.spawn("seq 3")
            assert (await p.wait()).stdout == "1\n2\n3\n"
            await box.filesystem.write("/workspace/x", io.BytesIO(b"y" * 3_000_000))
            assert len(await box.filesystem.read("/workspace/x")) == 3_000_000
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.exec("touch /tmp/began; sleep 30"), 2)

    asyncio.run(body())


def test_readme(daemon: Client, tmp_path: Path) -> None:
    """What the README shows runs as it is."""
    text = (Path(__file__).parents[1] / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(snippets) >= 5
    env = {**os.environ, "BERM_URL": daemon.config.url, "BERM_TOKEN": daemon.config.token,
           "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    for snippet in snippets:
        ran = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, snippet + ran.stderr


@pytest.mark.parametrize("example", ["agent_step.py", "agent_session.py", "agent_best_of.py"])
def test_examples(daemon: Client, example: str) -> None:
    env = {**os.environ, "BERM_URL": daemon.config.url, "BERM_TOKEN": daemon.config.token,
           "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    ran = subprocess.run([sys.executable, str(ROOT / "examples" / example)], env=env, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr

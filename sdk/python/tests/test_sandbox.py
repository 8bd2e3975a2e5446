"""The shape of the client, against the daemon of paper."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import berm
from berm import AsyncClient, Client, Sandbox
from stub import TOKEN, Stub


def test_seed_example(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worked example of the guide, with only its import changed."""
    monkeypatch.setenv("BERM_URL", stub.url)
    monkeypatch.setenv("BERM_TOKEN", TOKEN)
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
    try:
        import agent_step
    finally:
        sys.path.pop(0)
    got = agent_step.run_agent_step("hello", "r1", "s1", {"key": "k"})
    assert got == {"run": "r1", "exit_code": 0, "stdout": "hello", "stderr": ""}
    (box,) = stub.sandboxes.values()
    assert box["asked"] == {"template": "code-interpreter", "ttl_seconds": 120, "metadata": {"run_id": "r1", "session": "s1"}}
    assert box["state"] == "ended"
    assert stub.files[box["id"]]["/run/creds.json"] == b'{"key": "k"}'
    berm.close_shared()


def test_create_says_only_what_was_said(stub: Stub, client: Client) -> None:
    client.create()
    client.create(
        "base", isolation="gvisor", min_isolation="gvisor", limits=berm.Limits(memory_bytes=1 << 30, pids=64),
        env={"A": "b"}, tags={"run_id": "r"}, session="s", idle_timeout_seconds=60, timeout_seconds=5,
        persistent=True, egress=[], learn=True)
    first, second = [b["asked"] for b in stub.sandboxes.values()]
    assert first == {}
    assert second == {
        "template": "base", "isolation": "gvisor", "min_isolation": "gvisor", "limits": {"memory_bytes": 1 << 30, "pids": 64},
        "env": {"A": "b"}, "tags": {"run_id": "r"}, "session": "s", "idle_timeout_seconds": 60, "timeout_seconds": 5,
        "persistent": True, "egress": [], "learn": True}


def test_egress(stub: Stub, client: Client) -> None:
    box = client.create(egress=["a.test:443", {"allow": "b.test:80", "uses": 1}])
    rules = [{"allow": "a.test:443"}, {"allow": "b.test:80", "uses": 1}]
    assert stub.sandboxes[box.id]["asked"] == {"egress": rules} and box.info.egress == rules
    state = box.egress()
    assert (state.link, state.egress, state.egress_bytes, state.ingress_bytes) == (True, rules, 5, 7)
    assert state.hosts == ["a.test:443"] and state.wanted == ["b.test:80"] and not state.truncated
    assert state.denied == [berm.Denial("egress", "b.test:80", "end", "no", "b.test:80")]
    assert box.set_egress(["a.test:443"]).egress == box.info.egress == rules[:1]
    with pytest.raises(berm.ForbiddenError) as wider:
        box.set_egress(["c.test"])
    assert wider.value.code == "policy.wider"
    without = client.create()
    assert without.info.egress is None and not without.egress().link
    with pytest.raises(berm.ConflictError) as none:
        without.set_egress([])
    assert none.value.code == "egress.no-link"
    for wrong in ("a.test", {"allow": "a.test"}):
        with pytest.raises(TypeError):
            client.create(egress=wrong)  # type: ignore[arg-type]


def test_exec(box: Sandbox) -> None:
    assert box.exec("echo hi").stdout == "hi\n"
    assert box.exec(["warn", "hi"]).stderr == "hi\n"
    assert box.commands.run("exit 3", timeout=5).exit_code == 3
    assert box.exec("env", env={"A": "b"}).stdout == "A=b\n"
    assert box.exec("cat", input="in").stdout == "in"
    late = box.exec("slow", timeout_seconds=1)
    assert (late.exit_code, late.timed_out, late.ending, late.stdout, late.ok) == (124, True, "timeout", "part\n", False)
    raw = box.exec("bytes")
    assert raw.stdout == "a\ufffdb\ufffd" and raw.stdout_bytes == b"a\xffb\xc3"
    with pytest.raises(berm.CommandFailed) as failed:
        box.exec("exit 3", check=True)
    assert failed.value.exit_code == 3
    with pytest.raises(TimeoutError) as timed:
        box.exec("slow", check=True)
    assert isinstance(timed.value, berm.CommandTimeout) and timed.value.stdout == "part\n"


def test_callbacks_and_stream(box: Sandbox) -> None:
    out, err = [], []
    result = box.exec("utf8", on_stdout=out.append, on_stderr=err.append)
    assert "".join(out) == "\xe5\u2028\x85" == result.stdout and err == [] and result.ok
    stream = box.exec_stream("count 5")
    assert [c.text for c in stream] == ["0\n", "1\n", "2\n", "3\n", "4\n"]
    assert stream.result is not None and stream.result.stdout == "0\n1\n2\n3\n4\n"
    with pytest.raises(berm.CommandTimeout):
        box.exec("slow", check=True, on_stdout=out.append)


def test_leaving_a_stream_ends_the_command(stub: Stub, box: Sandbox) -> None:
    with box.exec_stream("count 5") as stream:
        next(stream)
    assert stub.execs[stream.exec_id].killed
    with pytest.raises(ZeroDivisionError):
        box.exec("count 5", on_stdout=lambda text: 1 / 0)
    assert [e.killed for e in stub.execs.values()] == [True, True]


def test_spawn(stub: Stub, box: Sandbox) -> None:
    p = box.spawn("count 3", stdin=True)
    assert p.poll() == 0 and not p.info().running
    assert p.wait().stdout == "0\n1\n2\n"
    assert b"".join(c.data for c in p.output(2)) == b"1\n2\n"
    assert b"".join(c.data for c in box.process(p.exec_id).output()) == b"0\n1\n2\n"
    p.signal("TERM")
    p.signal(9)
    p.write_stdin("in")
    p.close_stdin()
    p.kill()
    ran = stub.execs[p.exec_id]
    assert (ran.signals, ran.stdin, ran.killed) == (["TERM", "9"], b"in", True)
    assert [e.exec_id for e in box.execs()] == [p.exec_id]
    with pytest.raises(berm.NotFoundError):
        box.process("x" + "0" * 32).wait()


def test_files(box: Sandbox, tmp_path: Path) -> None:
    fs = box.filesystem
    assert fs.write("/run/a b+c.txt", "h\xe9").bytes == 3
    assert fs.read("/run/a b+c.txt") == "h\xe9".encode() and fs.read_text("/run/a b+c.txt") == "h\xe9"
    fs.write("/w/sub/x", b"1")
    fs.write("/w/y", iter([b"2", b"3"]))
    fs.write("/w/z", io.BytesIO(b"4"), mode=0o755)
    fs.mkdir("/w/empty")
    assert [(e.name, e.is_dir) for e in fs.list("/w")] == [("empty", True), ("sub", True), ("y", False), ("z", False)]
    assert fs.listdir("/w") == fs.list("/w")
    assert fs.stat("/w/y").size == 2 and fs.exists("/w/y") and not fs.exists("/w/no")
    assert [(d, [f.name for f in files]) for d, _, files in fs.walk("/w")] == [
        ("/w", ["y", "z"]), ("/w/empty", []), ("/w/sub", ["x"])]
    fs.move("/w/y", "/w/moved")
    fs.remove("/w/sub")
    assert not fs.exists("/w/sub") and fs.read("/w/moved") == b"23"
    with pytest.raises(berm.NotFoundError):
        fs.read("/w/y")
    with pytest.raises(berm.TooLargeError):
        fs.read("/w/moved", max_bytes=1)
    big = tmp_path / "big"
    big.write_bytes(bytes(range(256)) * 8192)
    assert fs.upload(big, "/w/big").bytes == 2 << 20
    assert fs.download("/w/big", tmp_path / "back") == 2 << 20
    assert (tmp_path / "back").read_bytes() == big.read_bytes()
    with pytest.raises(berm.NotFoundError):
        fs.download("/w/none", tmp_path / "none")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "big"]
    assert [e.op for e in fs.watch("/w", recursive=True)] == ["ready", "create"]


def test_tar(box: Sandbox) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as t:
        info = tarfile.TarInfo("f")
        info.size = 2
        t.addfile(info, io.BytesIO(b"hi"))
    box.filesystem.write_tar("/w", buffer.getvalue())
    box.filesystem.write_tar("/v", io.BytesIO(buffer.getvalue()))
    assert box.filesystem.read("/w/f") == box.filesystem.read("/v/f") == b"hi"
    back = io.BytesIO(b"".join(box.filesystem.read_tar("/w")))
    with tarfile.open(fileobj=back) as t:
        assert t.getnames() == ["f"]


def test_life(stub: Stub, client: Client, box: Sandbox) -> None:
    assert box.set_ttl(600).ttl_seconds == 600 and box.info.ttl_seconds == 600
    assert box.set_persistent().persistent and box.lifecycle().persistent
    box.pause()
    with pytest.raises(berm.SandboxPausedError) as paused:
        box.exec("echo hi")
    assert paused.value.code == "sandbox.paused" and paused.value.request_id and paused.value.status == 409
    box.resume()
    assert [p.port for p in box.ports()] == [8000]
    assert box.preview_url(8000, "/a") == f"{stub.url}/v1/sandboxes/{box.id}/proxy/8000/a"
    assert [line.line for line in box.logs()] == ["one", "tw\xf6"]
    assert [line.line for line in box.logs(follow=True)] == ["one", "two"]
    assert [e.seq for e in box.events()] == [1, 2, 3, 4, 5, 6, 7]
    assert [i.id for i in client.list()] == [box.id] and client.connect(box.id).id == box.id
    box.kill()
    box.kill()
    with pytest.raises(berm.SandboxEndedError):
        box.exec("echo hi")


def test_context(stub: Stub, client: Client) -> None:
    with client.create() as gone, client.create(persistent=True) as kept:
        pass
    assert stub.sandboxes[gone.id]["state"] == "ended" and stub.sandboxes[kept.id]["state"] == "running"
    with pytest.raises(KeyError), client.create() as box:  # what the block raised is what comes out
        stub.fault(".*", (500, {}, {"error": "no", "code": "host.failure"}))
        with pytest.warns(RuntimeWarning):
            box.__exit__(KeyError, KeyError(), None)
        raise KeyError


def test_async(stub: Stub) -> None:
    async def body() -> None:
        async with AsyncClient(stub.url, TOKEN) as client, await client.create() as box:
            assert (await box.exec("echo hi")).stdout == "hi\n"
            seen = []

            async def tell(text: str) -> None:
                seen.append(text)

            assert (await box.exec("count 3", on_stdout=tell)).ok and seen == ["0\n", "1\n", "2\n"]
            stream = box.exec_stream("count 2")
            assert [c.data async for c in stream] == [b"0\n", b"1\n"]
            p = await box.spawn("count 2")
            assert (await p.wait()).stdout == "0\n1\n"
            await box.filesystem.write("/w/a", io.BytesIO(b"x" * 600_000))
            assert len(await box.filesystem.read("/w/a")) == 600_000
            assert [d async for d, _, _ in box.filesystem.walk("/w")] == ["/w"]
            many = await asyncio.gather(*(box.exec(f"echo {i}") for i in range(20)))
            assert [r.stdout for r in many] == [f"{i}\n" for i in range(20)]
            task = asyncio.ensure_future(box.exec_stream("count 2").__anext__())
            await task
        assert stub.sandboxes[box.id]["state"] == "ended"

    asyncio.run(body())


def test_async_alone(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERM_URL", stub.url)
    monkeypatch.setenv("BERM_TOKEN", TOKEN)

    async def body() -> None:
        async with await berm.AsyncSandbox.create() as box:
            assert (await box.exec("echo hi")).stdout == "hi\n"
            assert [i.sandbox_id for i in await berm.AsyncSandbox.list()] == [box.id]
        assert box.client._http.is_closed

    asyncio.run(body())


def test_sync_is_made_from_async() -> None:
    script = Path(__file__).resolve().parents[1] / "scripts" / "unasync.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True)

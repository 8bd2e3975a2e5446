"""Connections that break, daemons that refuse: nothing runs twice, nothing is
taken for a success that was none."""

from __future__ import annotations

import time

import pytest

import berm
from berm import Client, Sandbox, errors
from berm import _wire as wire
from stub import TOKEN, Stub

EXEC = r"POST .*/exec"
STREAM = r"POST .*/exec/stream"
OUTPUT = r"GET .*/output"


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_create_is_sent_again_and_makes_one(stub: Stub, client: Client, fault: str) -> None:
    stub.fault("POST /v1/sandboxes", fault, 2)
    box = client.create()
    assert list(stub.sandboxes) == [box.id]
    keys = {h["Idempotency-Key"] for m, p, h, _ in stub.seen if m == "POST"}
    assert len(keys) == 1
    assert client.create().id != box.id


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_exec_runs_once(stub: Stub, box: Sandbox, fault: str) -> None:
    stub.fault(EXEC, fault, 2)
    result = box.exec("echo hi")
    assert result.stdout == "hi\n" and stub.runs == {result.exec_id: 1}
    stub.fault(EXEC, fault, 1)
    p = box.spawn("echo hi")
    assert stub.runs[p.exec_id] == 1


def test_exec_gives_up_with_the_id(stub: Stub, box: Sandbox) -> None:
    stub.fault(EXEC, "lose", 100)
    began = time.monotonic()
    with pytest.raises(berm.ExecInterrupted) as lost:
        box.exec("echo hi")
    assert time.monotonic() - began < 5
    assert stub.runs == {lost.value.exec_id: 1}
    stub.faults.clear()
    assert box.process(lost.value.exec_id).wait().stdout == "hi\n"


@pytest.mark.parametrize("at", [0, 1, 4, 5])
def test_a_broken_stream_goes_on_where_it_broke(stub: Stub, box: Sandbox, at: int) -> None:
    stub.fault(STREAM, ("cut", at))
    stub.fault(OUTPUT, ("cut", 1))
    stub.fault(OUTPUT, "drop")
    stream = box.exec_stream("count 5")
    assert b"".join(c.data for c in stream) == b"0\n1\n2\n3\n4\n"
    assert stream.result is not None and stream.result.exit_code == 0
    assert stub.runs == {stream.exec_id: 1}


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_a_stream_that_never_began(stub: Stub, box: Sandbox, fault: str) -> None:
    stub.fault(STREAM, fault, 2)
    stream = box.exec_stream("count 2")
    assert b"".join(c.data for c in stream) == b"0\n1\n"
    assert stub.runs == {stream.exec_id: 1}


def test_a_stream_that_stays_broken(stub: Stub, box: Sandbox) -> None:
    stub.fault(STREAM, ("cut", 2))
    stub.fault(OUTPUT, "drop", 100)
    with pytest.raises(berm.ExecInterrupted) as lost:
        box.exec("count 5", on_stdout=print)
    assert lost.value.stdout == "0\n1\n"


def test_a_daemon_that_stops(stub: Stub, box: Sandbox) -> None:
    stub.fault(STREAM, ("stop", 2))
    stub.fault(OUTPUT, (503, {"Retry-After": "0"}, {"error": "stopping", "code": "daemon.stopping"}))
    assert b"".join(c.data for c in box.exec_stream("count 5")) == b"0\n1\n2\n3\n4\n"


def test_output_of_one_that_runs(stub: Stub, box: Sandbox) -> None:
    p = box.spawn("count 2")
    stub.execs[p.exec_id].running = True
    assert p.poll() is None and b"".join(c.data for c in p.output(follow=False)) == b"0\n1\n"


def test_half_an_answer_is_no_success(stub: Stub, box: Sandbox) -> None:
    stub.fault(EXEC, (200, {}, {"stdout": "hi"}))
    with pytest.raises(berm.ServerError):
        box.exec("echo hi")
    stub.fault(EXEC, (200, {}, None))
    with pytest.raises(berm.ServerError):
        box.exec("echo hi")
    stub.fault("POST /v1/sandboxes", (201, {}, {}))
    with pytest.raises(berm.ServerError):
        box.client.create()


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (400, "request.invalid", berm.BadRequestError), (401, "token.invalid", berm.AuthError),
        (403, "token.forbidden", berm.ForbiddenError), (404, "sandbox.not-found", berm.NotFoundError),
        (409, "session.conflict", berm.ConflictError), (409, "sandbox.paused", berm.SandboxPausedError),
        (410, "sandbox.ended", berm.SandboxEndedError), (413, "request.too-large", berm.TooLargeError),
        (422, "limit.unenforceable", berm.BadRequestError), (429, "quota.exceeded", berm.QuotaError),
        (500, "host.failure", berm.ServerError), (501, "feature.unavailable", berm.UnsupportedError),
        (503, "audit.failed", berm.CapacityError), (504, "guest.silent", berm.TimeoutError),
    ],
)
def test_errors(stub: Stub, box: Sandbox, status: int, code: str, kind: type) -> None:
    stub.fault(EXEC, (status, {"Retry-After": "7"}, {"error": "text", "code": code, "hint": "do", "request_id": "q9"}))
    with pytest.raises(kind) as got:
        box.exec("echo hi")
    err = got.value
    assert isinstance(err, berm.BermError) and type(err) is kind
    assert (err.message, err.code, err.hint, err.status, err.request_id, err.retry_after) == ("text", code, "do", status, "q9", 7)
    assert "text" in str(err) and "do" in str(err) and "q9" in str(err)


def test_only_waiting_that_helps(stub: Stub, client: Client) -> None:
    stub.fault("POST /v1/sandboxes", (429, {}, {"error": "full", "code": "quota.exceeded"}))
    with pytest.raises(berm.QuotaError) as got:
        client.create()
    assert got.value.retry_after is None
    for status in (429, 503, 507):
        stub.fault("POST /v1/sandboxes", (status, {"Retry-After": "0"}, {"error": "wait", "code": "x.y"}))
    assert client.create().id
    stub.fault("POST /v1/sandboxes", (429, {"Retry-After": "600"}, {"error": "wait", "code": "quota.rate"}))
    with pytest.raises(berm.QuotaError):
        client.create()
    stub.fault(EXEC, (503, {"Retry-After": "0"}, {"error": "stopping", "code": "daemon.stopping"}))
    assert client.create().exec("echo hi").ok


def test_no_token_goes_out_by_accident(stub: Stub) -> None:
    with Client(stub.url, "") as client, pytest.raises(berm.AuthError):
        client.create()
    assert "Authorization" not in stub.seen[-1][2]
    with Client(stub.url, TOKEN) as client:
        assert TOKEN not in repr(client.config)


def test_ids_stay_inside_the_path(stub: Stub, client: Client) -> None:
    for bad in ("", "..", "../sandboxes", "a/b", "a?b"):
        with pytest.raises(berm.NotFoundError):
            client.connect(bad)
    assert not stub.seen
    box = client.create()
    with pytest.raises(berm.NotFoundError):
        box.process("../../x").info()
    assert "..%2F..%2Fx" in stub.seen[-1][1]


def test_no_redirect_is_followed(stub: Stub, box: Sandbox) -> None:
    stub.fault(EXEC, (307, {"Location": "http://127.0.0.1:1/"}, {}))
    with pytest.raises(berm.BadRequestError):
        box.exec("echo hi")


def test_unreachable() -> None:
    with Client("http://127.0.0.1:1", "t", retry_seconds=0.3) as client, pytest.raises(ConnectionError) as got:
        client.version()
    assert isinstance(got.value, berm.ConnectionError)


def test_output_is_bounded() -> None:
    kept = wire.Collector(1000)
    for i in range(1000):
        kept.add(berm.OutputChunk("stdout", b"%09d\n" % i, i * 10))
    got = kept.result({"exit_code": 0})
    assert len(got.stdout_bytes) == 1000 and got.stdout.startswith("000000000\n") and got.stdout.endswith("000000999\n")
    assert got.truncated and got.truncated.dropped_bytes == 9000
    gap = wire.Collector()
    gap.add(berm.OutputChunk("stderr", b"a", 0))
    gap.add(berm.OutputChunk("stderr", b"z", 101, gap=100))
    assert gap.result({"exit_code": 0}).truncated == berm.Truncated(False, True, 100)


def test_hostile_stream() -> None:
    cutter = wire.Events()
    with pytest.raises(errors.ServerError):
        for _ in range(100):
            list(cutter.feed(b"x" * (1 << 20)))
    cutter = wire.Events()
    with pytest.raises(errors.ServerError):
        for _ in range(100):
            list(cutter.feed(b"data: " + b"x" * (1 << 20) + b"\n"))
    for bad in ("[]", "nope", "null"):
        with pytest.raises(errors.ServerError):
            wire.Follower().event("chunk", bad)
    with pytest.raises(errors.ServerError):
        wire.Follower().event("exit", '{"result": {}}')


def test_events_across_pieces() -> None:
    text = b": hi\r\nevent: a\r\ndata: 1\r\ndata: 2\r\n\r\nevent: open\n\ndata: x\n\n"
    for size in (1, 2, 7, 100):
        cutter, got = wire.Events(), []
        for at in range(0, len(text), size):
            got += list(cutter.feed(text[at:at + size]))
        assert got == [("a", "1\n2"), ("open", ""), ("message", "x")]

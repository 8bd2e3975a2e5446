from __future__ import annotations

import threading
import time
from typing import Any, Iterator, List

import pytest
from pandastack import BadRequestError, CommandFailed, Sandbox, SandboxTimeout, ServerError

import pandastack
from test_sandboxes import raw


def test_streams_and_code(box: Sandbox) -> None:
    got = box.exec("echo out; echo err >&2; exit 3")
    assert (got.stdout, got.stderr, got.exit_code) == ("out\n", "err\n", 3)
    assert got.duration_ms >= 0
    assert box.commands.run("echo hi", timeout=10).stdout == "hi\n"
    assert box.exec("true").stdout == ""


def test_shell(box: Sandbox) -> None:
    assert box.exec("printf 'a b' | tr a-z A-Z && cd / && pwd && echo \"$0\"").stdout == "A B/\nsh\n"
    assert box.exec("no-such-command").exit_code == 127
    assert box.exec("kill -9 $$").exit_code == 137


def test_text(box: Sandbox) -> None:
    assert box.exec("printf '\\303\\245\\342\\200\\250\\302\\205|'").stdout == "\u00e5\u2028\u0085|"
    assert box.exec("printf 'a\\377b'").stdout == "a\ufffdb"
    assert box.exec("echo 'i/o timeout: connect: connection refused' >&2; exit 1").exit_code == 1


def test_check(box: Sandbox) -> None:
    assert box.exec("true", check=True).exit_code == 0
    with pytest.raises(CommandFailed) as failed:
        box.exec("echo o; echo e >&2; exit 7", check=True)
    assert (failed.value.exit_code, failed.value.stdout, failed.value.stderr) == (7, "o\n", "e\n")


def test_timeout_is_a_result(box: Sandbox) -> None:
    began = time.monotonic()
    got = box.exec("echo part; (setsid sleep 77 &) ; sleep 77", timeout_seconds=2)
    assert got.exit_code == 124 and got.stdout == "part\n"
    assert time.monotonic() - began < 15
    # Every descendant is gone, whatever session it moved to.
    assert box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 77$'").stdout.strip() in ("0", "")


def test_longer_than_the_clients_patience(client: Any, box: Sandbox) -> None:
    impatient = pandastack.Client(timeout=12).sandboxes.get(box.id)
    assert impatient.exec("sleep 25; echo done", timeout_seconds=60).stdout == "done\n"


def test_output_is_capped_not_lost(box: Sandbox) -> None:
    got = box.exec("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert got.exit_code == 0 and got.stdout.endswith("end\n") and got.stdout.startswith("x")
    assert len(got.stdout) < 2_000_000


def test_background_lives_on(box: Sandbox) -> None:
    began = time.monotonic()
    box.exec("nohup setsid sh -c 'sleep 1; echo 5 > /tmp/exit-file' >/dev/null 2>&1 &")
    assert time.monotonic() - began < 10
    until = time.monotonic() + 20
    while box.exec("cat /tmp/exit-file 2>/dev/null").stdout != "5\n":
        assert time.monotonic() < until
        time.sleep(0.2)


def test_files_and_directory(box: Sandbox) -> None:
    assert box.exec("touch here && test -w . && id -u").exit_code == 0
    assert box.exec("env | grep -c -i -E 'pandastack|berm_token'").stdout.strip() == "0"


def test_run_code(box: Sandbox) -> None:
    assert box.run_code("print('a\"b', 6*7)").stdout == "a\"b 42\n"
    assert box.run_code("echo $((6*7))", language="bash").stdout == "42\n"
    assert box.run_code("raise SystemExit(4)").exit_code == 4


def test_run_code_too_long_for_one_word(box: Sandbox) -> None:
    # The system takes no argument of more than 128 KiB; that is an answer.
    try:
        got = box.run_code("x = 1\n" * 40_000)
    except BadRequestError:
        return
    assert got.exit_code in (126, 127, 0)


def test_parallel(box: Sandbox) -> None:
    got: List[str] = [""] * 8

    def one(i: int) -> None:
        got[i] = box.exec(f"sleep 0.2; echo {i}").stdout

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [f"{i}\n" for i in range(8)]


def test_exec_stream(box: Sandbox) -> None:
    out: List[str] = []
    err: List[str] = []
    seen: List[float] = []

    def on_stdout(text: str) -> None:
        out.append(text)
        seen.append(time.monotonic())

    code = box.exec_stream("echo one; sleep 1; echo two >&2; echo three; exit 3", on_stdout, err.append)
    assert code == 3 and "".join(out) == "one\nthree\n" and "".join(err) == "two\n"
    assert seen[-1] - seen[0] > 0.5  # as it comes, not at the end


def test_exec_stream_text(box: Sandbox) -> None:
    out: List[str] = []
    box.exec_stream("printf '\\303'; sleep 0.3; printf '\\245\\342\\200\\250\\302\\205\\f\\r\\v|'", out.append)
    assert "".join(out) == "\u00e5\u2028\u0085\f\r\v|"
    out.clear()
    box.exec_stream("seq 200000", out.append)
    assert "".join(out) == "".join(f"{i}\n" for i in range(1, 200001))


def test_exec_stream_timeout(box: Sandbox) -> None:
    out: List[str] = []
    with pytest.raises(SandboxTimeout):
        box.exec_stream("echo part; sleep 60", out.append, timeout_seconds=2)
    assert "".join(out) == "part\n"


def test_exec_stream_silence(client: Any, box: Sandbox) -> None:
    assert box.exec_stream("sleep 3") == 0


def detached(client: Any, box: Sandbox, cmd: str) -> None:
    """A log holds what ran without its caller. This SDK has no call for that."""
    started = raw(client, "POST", f"/sandboxes/{box.id}/exec", json={"cmd": cmd, "detach": True})
    assert started.status_code == 202
    until = time.monotonic() + 20
    path = f"/sandboxes/{box.id}/execs/{started.json()['exec_id']}"
    while raw(client, "GET", path).json()["state"] != "ended":
        assert time.monotonic() < until
        time.sleep(0.1)


def test_logs(client: Any, box: Sandbox) -> None:
    detached(client, box, "echo in-the-log; echo oops-in-the-log >&2")
    lines = list(box.logs())
    assert any("in-the-log" in line for line in lines)
    assert not any("oops-in-the-log" in line for line in box.logs(stream="stdout"))
    assert any("oops-in-the-log" in line for line in box.logs(stream="stderr"))


def test_logs_follow(client: Any, box: Sandbox) -> None:
    got: List[str] = []

    def read(lines: Iterator[str]) -> None:
        for line in lines:
            got.append(line)
            if "followed" in line:
                return

    reader = threading.Thread(target=read, args=(box.logs(follow=True),), daemon=True)
    reader.start()
    until = time.monotonic() + 20
    while reader.is_alive():
        detached(client, box, "echo followed")
        assert time.monotonic() < until
        reader.join(0.3)
    assert any(line == "followed" for line in got)


def test_killed_while_it_runs(client: Any) -> None:
    box = Sandbox.create(ttl_seconds=60)
    threading.Timer(1.0, box.kill).start()
    try:
        got = box.exec("sleep 30")
    except (BadRequestError, ServerError, pandastack.APIConnectionError):
        return
    assert got.exit_code != 0

"""kill -9 of the daemon under a client that streams: BERM_BIN names the program,
and the test starts daemons of its own in a state directory of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

import berm


class Daemon:
    def __init__(self, program: str, state: Path) -> None:
        self.program, self.state = program, state
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.start()

    def start(self) -> None:
        with open(self.state / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", "--state", str(self.state), "--listen", f"127.0.0.1:{self.port}"],
                stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("berm: ready"):
                return
        raise AssertionError("the daemon did not get ready: " + (self.state / "log").read_text()[-2000:])

    def end(self, how: int) -> None:
        self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    program = os.environ.get("BERM_BIN", "")
    if not program:
        pytest.skip("BERM_BIN names no program")
    if os.geteuid() != 0:
        pytest.skip("a daemon with every cap needs root")
    tmp_path.chmod(0o755)
    made = Daemon(program, tmp_path)
    yield made
    made.end(signal.SIGTERM)


def test_a_stream_outlives_the_daemon(own: Daemon) -> None:
    with berm.Client(f"http://127.0.0.1:{own.port}", (own.state / "token").read_text().strip(), retry_seconds=60) as client:
        box = client.create(ttl_seconds=300)
        stream = box.exec_stream("echo began >> /tmp/began; for i in $(seq 1 30); do echo line $i; sleep 0.2; done; exit 7", 120)
        got = [next(stream).text]
        own.end(signal.SIGKILL)
        time.sleep(1)  # output that nobody takes
        own.start()
        got += [chunk.text for chunk in stream]
        assert "".join(got) == "".join(f"line {i}\n" for i in range(1, 31))
        assert stream.result is not None and stream.result.exit_code == 7
        assert box.exec("cat /tmp/began").stdout == "began\n"  # executed once

        background = box.spawn("sleep 1; echo done")
        own.end(signal.SIGKILL)
        own.start()
        assert background.wait().stdout == "done\n"
        box.kill()


def test_an_exec_outlives_the_daemon(own: Daemon) -> None:
    """A plain exec is asked for again under its id."""
    with berm.Client(f"http://127.0.0.1:{own.port}", (own.state / "token").read_text().strip(), retry_seconds=60) as client:
        box = client.create(ttl_seconds=300)
        killer = threading.Timer(1.0, lambda: (own.end(signal.SIGKILL), own.start()))
        killer.start()
        got = box.exec("echo x >> /tmp/count; sleep 3; cat /tmp/count", timeout_seconds=60)
        killer.join()
        assert (got.stdout, got.exit_code) == ("x\n", 0)
        box.kill()

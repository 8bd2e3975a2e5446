"""The guide's own function, as written, with the import it has."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest


@pytest.fixture
def seed(client: Any) -> Any:
    if sys.version_info < (3, 10):
        pytest.skip("the guide's annotations need Python 3.10")
    import seed_step

    seed_step._to_json = json.dumps  # the caller's own helper
    return seed_step


def test_step(seed: Any, client: Any) -> None:
    got = seed.run_agent_step("import sys; print(6*7); print('e', file=sys.stderr)", "run-1", "session-1")
    assert got == {"run": "run-1", "exit_code": 0, "stdout": "42\n", "stderr": "e\n"}


def test_step_with_credentials(seed: Any) -> None:
    code = "import json; print(json.load(open('/run/creds.json'))['key'])"
    assert seed.run_agent_step(code, "run-2", "session-1", {"key": "scoped"})["stdout"] == "scoped\n"


def test_step_that_fails(seed: Any) -> None:
    got = seed.run_agent_step("raise ValueError('no')", "run-3", "session-1")
    assert got["exit_code"] == 1 and "ValueError: no" in got["stderr"]


def test_step_has_no_way_out(seed: Any) -> None:
    code = ("import socket, os\n"
            "for a in [('169.254.169.254', 80), ('127.0.0.1', 22), ('10.0.0.1', 80)]:\n"
            "    try: socket.create_connection(a, 2); print('reached', a)\n"
            "    except OSError: pass\n"
            "print(sorted(k for k in os.environ if 'KEY' in k or 'TOKEN' in k))\n")
    assert seed.run_agent_step(code, "run-4", "session-1")["stdout"] == "[]\n"


def test_steps_share_nothing(seed: Any) -> None:
    seed.run_agent_step("open('/tmp/left', 'w').write('x')", "run-5", "s")
    assert "FileNotFoundError" in seed.run_agent_step("open('/tmp/left')", "run-6", "s")["stderr"]

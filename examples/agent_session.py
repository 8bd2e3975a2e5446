"""An agent's task over many steps: one sandbox for one task of one user.

State (files, installed things, servers) lives from step to step, and all of it
ends with the task. Three habits keep that safe:

  - one session, one sandbox: a sandbox's `session` never changes, and a command
    that names another one is refused;
  - `ttl_seconds` is a hard end even if this program dies; `persistent` only keeps
    the idle reaper away while a model thinks;
  - a credential goes in for the step that needs it, as a file below /run (memory),
    and comes out right after.
"""

from __future__ import annotations

import json
import uuid
from typing import Iterable

from berm import Limits, Sandbox


def run_session(steps: Iterable[str], session: str) -> list[dict]:
    sbx = Sandbox.create(
        session=session,
        persistent=True,
        ttl_seconds=1800,
        min_isolation="gvisor",               # refuse to run behind less
        limits=Limits(memory_bytes=1 << 30, pids=256, timeout_seconds=60),
        tags={"run_id": session},
    )
    seen = []
    try:
        for number, code in enumerate(steps):
            sbx.filesystem.write(f"/workspace/step{number}.py", code)
            result = sbx.exec(["python3", f"step{number}.py"], session=session)
            seen.append({"step": number, "exit_code": result.exit_code, "ending": result.ending,
                         "stdout": result.stdout, "stderr": result.stderr[-2000:]})
            if result.ending in ("memory", "timeout", "processes"):
                break                         # tell the model which cap it hit
    finally:
        sbx.kill()                            # state, credentials, processes: gone
    return seen


def with_credential(sbx: Sandbox, cmd: str, credential: dict) -> str:
    """One command that may use a credential; nothing after it can."""
    sbx.filesystem.write("/run/creds.json", json.dumps(credential))
    try:
        return sbx.exec(cmd, check=True).stdout
    finally:
        sbx.filesystem.remove("/run/creds.json")


if __name__ == "__main__":
    task = "task-" + uuid.uuid4().hex[:8]
    for step in run_session(
        ["open('notes.txt', 'w').write('remember me')", "print(open('notes.txt').read())", "raise SystemExit(3)"], task,
    ):
        print(step)
    with Sandbox.create(ttl_seconds=60) as one:
        print(with_credential(one, "wc -c < /run/creds.json", {"key": "short-lived"}).strip(), "bytes of credential, gone now:",
              not one.filesystem.exists("/run/creds.json"))

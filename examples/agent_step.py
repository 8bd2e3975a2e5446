"""One step of an agent: code that a model wrote, in a sandbox of its own.

    BERM_URL=http://127.0.0.1:7070 BERM_TOKEN=... python3 agent_step.py 'print(6 * 7)'
"""

from __future__ import annotations

import json
import sys

from berm import Sandbox


def _to_json(value: dict) -> str:
    return json.dumps(value)


def run_agent_step(code: str, run_id: str, session_id: str,
                   scoped_creds: dict | None = None) -> dict:
    """Runs ONE step of model-generated code: a fresh boundary, no ambient
    credentials, no network, scoped short-lived credentials only if the step
    needs them, destroyed when done."""
    with Sandbox.create(
        template="code-interpreter",
        ttl_seconds=120,                      # backstop: a runaway step reaps itself
        metadata={"run_id": run_id, "session": session_id},  # audit trail
    ) as sbx:
        # /run is memory, and files there never reach a snapshot.
        if scoped_creds:
            sbx.filesystem.write("/run/creds.json", _to_json(scoped_creds))
        sbx.filesystem.write("/run/step.py", code)

        # timeout_seconds is the circuit breaker: it ends this command, with
        # everything it started, and keeps what it wrote.
        result = sbx.exec("python3 /run/step.py", timeout_seconds=90)
        return {
            "run": run_id,
            "exit_code": result.exit_code,
            "stdout": result.stdout,   # feed back into the agent loop
            "stderr": result.stderr,
        }


if __name__ == "__main__":
    code = sys.argv[1] if len(sys.argv) > 1 else "print(6 * 7)"
    print(json.dumps(run_agent_step(code, "example", "example"), indent=2))

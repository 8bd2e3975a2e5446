from pandastack import Sandbox

def run_agent_step(code: str, run_id: str, session_id: str,
                  scoped_creds: dict | None = None) -> dict:
    """Execute ONE step of model-generated code in its own microVM.
    Fresh boundary, no ambient creds, deny-by-default egress, scoped
    short-lived creds only if the step needs them, destroyed when done."""
    with Sandbox.create(
        template="code-interpreter",
        ttl_seconds=120,                      # backstop: a runaway step reaps itself
        metadata={"run_id": run_id, "session": session_id},  # audit trail
        # Create with egress allowlisted to ONLY this step's endpoints (or
        # none). Metadata endpoint (169.254.169.254) blocked.
    ) as sbx:
        # No host creds live in this guest. If the step genuinely needs to
        # touch a resource, inject a SCOPED, SHORT-LIVED credential as a file.
        if scoped_creds:
            sbx.filesystem.write("/run/creds.json", _to_json(scoped_creds))

        # The model's code. We never trust it -- it runs behind a hardware
        # boundary, not next to the agent's own credentials.
        sbx.filesystem.write("/run/step.py", code)

        # timeout_seconds is the circuit breaker; it kills THIS vm only.
        result = sbx.exec("python3 /run/step.py", timeout_seconds=90)
        return {
            "run": run_id,
            "exit_code": result.exit_code,
            "stdout": result.stdout,   # feed back into the agent loop
            "stderr": result.stderr,
        }
    # VM gone here: the code, any scoped cred, cached tokens, and every byte
    # the step touched are destroyed. The next step starts from nothing.

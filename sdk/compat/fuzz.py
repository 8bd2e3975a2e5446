"""The requests of the OpenAPI document, right and wrong ones, against a daemon.

A finding is an answer of 500 or above that is not a typed 501 or 507 (or 503
with Retry-After), an error without a code, a redirect, or no answer at all.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from typing import Any, Dict, List, Optional

import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.generation import GenerationMode

URL, TOKEN = os.environ["BERM_URL"].rstrip("/"), os.environ["BERM_TOKEN"]
SECONDS, SEED, EXAMPLES = (float(os.environ.get("FUZZ_" + n, d)) for n, d in (("SECONDS", 120), ("SEED", 1), ("EXAMPLES", 8)))
# Ends what the daemon hands out, so that the run stays alive: an admin that
# revokes its own token, sees only 401 afterwards.
SKIP = {"token.revoke", "me.tokens.revoke"}


@schemathesis.serializer("application/x-tar")
def tar(ctx: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


session = requests.Session()
session.trust_env = False
session.headers["Authorization"] = "Bearer " + TOKEN
chance = random.Random(int(SEED))
seen: Counter = Counter()
findings: List[str] = []
slow: Counter = Counter()


def sandbox() -> str:
    answer = session.post(URL + "/v1/sandboxes", json={"ttl_seconds": SECONDS + 120, "tags": {"run_id": "fuzz"}}, timeout=60)
    answer.raise_for_status()
    return answer.json()["sandbox_id"]


def send(name: str, case: Any, box: Optional[str]) -> None:
    kwargs = case.as_transport_kwargs(base_url=URL)
    kwargs["url"] = kwargs["url"].replace("FUZZBOX", box or "")
    # Without the token every answer is 401, and soon 429: another test's matter.
    kwargs["headers"] = {**{k: v for k, v in (kwargs.get("headers") or {}).items() if k.lower() not in ("authorization", "upgrade")},
                         "Authorization": "Bearer " + TOKEN}
    if "wait" in (kwargs.get("params") or {}):
        kwargs["params"]["wait"] = chance.choice(["0", "1", "x"])
    began = time.monotonic()
    shown = f"{name}: {kwargs['method']} {kwargs['url'][:300]} {str(kwargs.get('params'))[:300]} {str(kwargs.get('json', kwargs.get('data')))[:300]}"
    try:
        with session.request(**kwargs, timeout=40, stream=True, allow_redirects=False) as answer:
            body, until = b"", time.monotonic() + 1.5
            if answer.status_code >= 300 or "event-stream" not in answer.headers.get("Content-Type", ""):
                for piece in answer.iter_content(1 << 16):
                    body += piece
                    if time.monotonic() > until or len(body) > 1 << 20:
                        break
            judge(shown, answer, body)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError, ValueError):
        seen["not sendable"] += 1
    except requests.exceptions.ChunkedEncodingError:
        seen["cut"] += 1  # an answer that went wrong half way is cut, never ended
    except requests.exceptions.RequestException as err:
        try:
            session.get(URL + "/healthz", timeout=10).raise_for_status()
        except requests.exceptions.RequestException:
            findings.append(f"the daemon is gone after {shown}")
            report()
        if not isinstance(err, requests.exceptions.Timeout):
            findings.append(f"no answer ({err!r:.200}) to {shown}")


    slow[name] += time.monotonic() - began


def judge(shown: str, answer: requests.Response, body: bytes) -> None:
    status = answer.status_code
    seen[status] += 1
    wrong = ""
    if status >= 400 and answer.request.method != "HEAD" and "/proxy/" not in shown:
        try:
            error: Dict[str, Any] = json.loads(body)
            code = error["code"]
            if not isinstance(error["error"], str) or not error["request_id"]:
                wrong = "an error without its text or request id"
        except (ValueError, KeyError, TypeError):
            code, wrong = "", "an error that is not typed"
        if status >= 500 and not (status in (501, 507) or code in ("daemon.stopping", "port.closed", "guest.silent")):
            wrong = f"{status} {code}"
    elif 300 <= status < 400:
        wrong = "a redirect"
    if wrong:
        findings.append(f"{wrong}: {shown} -> {body[:300]!r}")


def report() -> None:
    for finding in findings[:50]:
        print("FINDING", finding)
    print("answers:", ", ".join(f"{k} x{n}" for k, n in sorted(seen.items(), key=str)))
    print("slowest:", ", ".join(f"{name} {s:.0f} s" for name, s in slow.most_common(5)))
    print(f"{sum(seen.values())} requests, {len(findings)} findings")
    sys.exit(1 if findings else 0)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as f:
        document = yaml.safe_load(f)
    schema = schemathesis.openapi.from_dict(document)
    operations = []
    for found in schema.get_all_operations():
        operation = found.ok()
        name = operation.definition.raw.get("operationId", operation.label)
        if name not in SKIP:
            missing = operation.definition.raw.get("summary", "").startswith("Waits for a part")
            operations.append((name, operation, 1 if missing else int(EXAMPLES)))
    print(f"{len(operations)} operations, {SECONDS:.0f} s, seed {SEED:.0f}")
    end = time.monotonic() + SECONDS
    box, turn = sandbox(), 0
    while time.monotonic() < end:
        turn += 1
        chance.shuffle(operations)
        for name, operation, examples in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                if time.monotonic() > end:
                    break
                try:
                    strategy = operation.as_strategy(generation_mode=mode)
                except Exception as err:  # nothing in it can be made wrong
                    seen[f"no {mode.value} data ({type(err).__name__})"] += 1
                    continue

                @seed(int(SEED) * 1000 + turn)
                @settings(max_examples=examples, deadline=None, database=None, phases=(Phase.generate,),
                          suppress_health_check=list(HealthCheck))
                @given(case=strategy)
                def run(case: Any) -> None:
                    if time.monotonic() > end:
                        return
                    # Ids that exist reach the code behind the look-up.
                    if "id" in (case.path_parameters or {}) and chance.random() < 0.8:
                        case.path_parameters["id"] = "FUZZBOX"
                    send(name, case, box)

                try:
                    run()
                except Exception as err:
                    if type(err).__name__ not in ("Unsatisfiable", "SkipTest", "InvalidArgument", "UnsatisfiableUnderlying"):
                        raise
                    seen["unsatisfiable"] += 1
        alive = session.get(f"{URL}/v1/sandboxes/{box}", timeout=30)
        if alive.status_code != 200 or alive.json().get("state") != "running":
            box = sandbox()
        clean(box)
    clean("")
    report()


def clean(keep: str) -> None:
    """Ends what the creates among the requests made."""
    for one in session.get(URL + "/v1/sandboxes", timeout=30).json():
        if one["sandbox_id"] != keep:
            session.delete(f"{URL}/v1/sandboxes/{one['sandbox_id']}", timeout=60)


if __name__ == "__main__":
    main()

"""What Berm does not offer is an error that says so, never a wrong success."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest
from pandastack import Sandbox, ServerError

from test_sandboxes import raw

CALLS: Dict[str, Callable[[Any, Sandbox], Any]] = {
    "snapshot": lambda c, b: b.snapshot(),
    "fork": lambda c, b: b.fork(),
    "fork with metadata": lambda c, b: b.fork(metadata={"a": "b"}),
    "fork_tree": lambda c, b: b.fork_tree(2),
    "promote": lambda c, b: b.promote(cleanup_siblings=True),
    "explore": lambda c, b: b.explore(["true", "false"]),
    "hibernate": lambda c, b: b.hibernate(),
    "wake": lambda c, b: b.wake(),
    "create from snapshot": lambda c, b: Sandbox.create(from_snapshot="n" + "0" * 32),
    "create with volumes": lambda c, b: Sandbox.create(volumes=[{"name": "v"}]),
    "code context": lambda c, b: b.create_code_context(),
    "snapshots.list": lambda c, b: c.snapshots.list(),
    "snapshots.get": lambda c, b: c.snapshots.get("x"),
    "snapshots.delete": lambda c, b: c.snapshots.delete("x"),
    "volumes.create": lambda c, b: c.volumes.create("v", 64),
    "volumes.list": lambda c, b: c.volumes.list(),
    "volumes.get": lambda c, b: c.volumes.get("v"),
    "volumes.delete": lambda c, b: c.volumes.delete("v"),
    "databases.list": lambda c, b: c.databases.list(),
    "functions.list": lambda c, b: c.functions.list(),
    "schedules.list": lambda c, b: c.schedules.list(),
    "apps.list": lambda c, b: c.apps.list(),
}


@pytest.mark.parametrize("name", CALLS)
def test_says_so(client: Any, box: Sandbox, name: str) -> None:
    before = len(Sandbox.list())
    with pytest.raises(ServerError) as refused:
        CALLS[name](client, box)
    assert str(refused.value).strip()
    assert len(Sandbox.list()) == before


ROUTES: Tuple[Tuple[str, str], ...] = (
    ("POST", "/sandboxes/{id}/snapshots"), ("POST", "/sandboxes/{id}/fork"), ("POST", "/sandboxes/{id}/fork-tree"),
    ("POST", "/sandboxes/{id}/promote"), ("POST", "/sandboxes/{id}/hibernate"), ("POST", "/sandboxes/{id}/wake"),
    ("POST", "/sandboxes/{id}/repl"), ("POST", "/sandboxes/{id}/repl/sessions"), ("GET", "/snapshots"),
    ("GET", "/volumes"), ("GET", "/databases"),
    ("POST", "/functions"), ("GET", "/functions/x/runs"), ("GET", "/schedules"), ("POST", "/apps/x/deploy"),
)


@pytest.mark.parametrize("method, path", ROUTES)
def test_typed(client: Any, box: Sandbox, method: str, path: str) -> None:
    answer = raw(client, method, path.format(id=box.id))
    body = answer.json()
    assert answer.status_code == 501 and body["code"] == "feature.unavailable" and isinstance(body["error"], str)
    assert body["request_id"] and "timeout" not in body["error"]

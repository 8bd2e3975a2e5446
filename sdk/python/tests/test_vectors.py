"""Replays api/vectors through the SDK's own transport, against the server that
BERM_URL names. BERM_HAS says what it has of a vector's `needs`; a daemon (the
default) has all."""

from __future__ import annotations

import base64
import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import httpx
import pytest

import berm
from berm import _wire as wire

VECTORS = Path(__file__).resolve().parents[3] / "api" / "vectors"
HAS = os.environ.get("BERM_HAS", "programs,events,admin,link").split(",")


def load() -> Iterator[Any]:
    for path in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(path.read_text())["vectors"]:
            yield pytest.param(vector, id=f"{path.stem}/{vector['name']}".replace(" ", "_"))


@pytest.mark.skipif(not VECTORS.is_dir(), reason="the repository's vectors are not here")
@pytest.mark.parametrize("vector", list(load()))
def test_vector(daemon: berm.Client, vector: Dict[str, Any]) -> None:
    for need in vector.get("needs", []):
        if need not in HAS:
            pytest.skip(f"this server has no {need}")
    player = Player(daemon)
    if "sandbox" in vector:
        player.step({"request": {"method": "POST", "path": "/v1/sandboxes", "json": vector["sandbox"]},
                     "status": 201, "save": {"id": "id"}})
    try:
        for step in vector["steps"]:
            player.step(step)
    finally:
        if "sandbox" in vector:
            player.step({"request": {"method": "DELETE", "path": "/v1/sandboxes/${id}"}, "status": 204})


class Player:
    def __init__(self, client: berm.Client) -> None:
        self.client = client
        self.vars = {"exec": wire.new_exec_id()}

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\$\{([a-z]+)\}", lambda m: self.vars[m[1]], value)
        if isinstance(value, dict):
            return {k: self.fill(v) for k, v in value.items()}
        return [self.fill(v) for v in value] if isinstance(value, list) else value

    def step(self, step: Dict[str, Any]) -> None:
        request = step["request"]
        where = f"{request['method']} {request['path']}"
        headers = {k: self.fill(v) for k, v in request.get("headers", {}).items()}
        token = request.get("token")
        if token:
            known = {"none": "", "wrong": "Bearer e2b_" + "0" * 40}
            headers["Authorization"] = known[token] if token in known else "Bearer " + self.fill(token)
        content = None
        if "json" in request:
            content = json.dumps(self.fill(request["json"])).encode()
            headers["Content-Type"] = "application/json"
        elif "text" in request:
            content = self.fill(request["text"]).encode()
        elif "base64" in request:
            content = base64.b64decode(request["base64"])
        try:
            response = self.client.open(
                request["method"], self.fill(request["path"]), content=content, headers=headers,
                params=[(k, self.fill(v)) for k, v in request.get("query", [])] or None, retry=wire.Retry(0, safe=False))
        except berm.BermError as err:
            # The SDK's error carries what the answer said.
            assert err.status == step["status"], f"{where}: {err!r} {err}"
            said = {"error": err.message, "code": err.code, "request_id": err.request_id}
            for key, matcher in (step.get("json") or {}).items():
                if key in said:
                    self.match(matcher, said[key], f"{where} .{key}")
            return
        assert response.status_code == step["status"], f"{where}: {response.status_code}"
        for name, matcher in step.get("headers", {}).items():
            self.match(matcher, response.headers.get(name), f"{where} {name}")
        if "sse" in step:
            return self.events(response, step["sse"], where)
        body = self.client._body(response, wire.MAX_ANSWER)
        if "json" in step:
            self.match(step["json"], json.loads(body), where)
        if "text" in step:
            self.match(step["text"], body.decode(), where)
        if "base64" in step:
            assert body == base64.b64decode(step["base64"]), where
        if step.get("empty"):
            assert body == b"", where
        for name, path in step.get("save", {}).items():
            value = json.loads(body)
            for part in path.split("."):
                value = value[part]
            self.vars[name] = value

    def events(self, response: httpx.Response, want: Dict[str, Any], where: str) -> None:
        text: Dict[str, str] = {}
        raw: Dict[str, bytes] = {}
        seen: List[Tuple[str, Any]] = []
        for name, data in self.client.events_of(response):
            got = json.loads(data) if data else {}
            seen.append((name, got))
            text[name] = text.get(name, "") + got.get("chunk", "")
            if name == "chunk":
                raw[got["stream"]] = raw.get(got["stream"], b"") + base64.b64decode(got["data"])
            if name == want.get("stop"):
                response.close()
                return
        assert {k: text.get(k) for k in want.get("text", {})} == want.get("text", {}), where
        assert {k: raw.get(k, b"").decode() for k in want.get("bytes", {})} == want.get("bytes", {}), where
        if "first" in want:
            assert seen[0][0] == want["first"], where
        if "last" in want:
            assert seen[-1][0] == want["last"][0], f"{where}: {seen[-1]}"
            self.match(want["last"][1], seen[-1][1], where)

    def match(self, want: Any, got: Any, where: str) -> None:
        want = self.fill(want)
        if isinstance(want, str) and want.startswith("$"):
            assert matches(want, got), f"{where}: {got!r} is not {want}"
        elif isinstance(want, dict) and "$has" in want:
            for item in got:
                try:
                    return self.match(want["$has"], item, where)
                except AssertionError:
                    pass
            raise AssertionError(f"{where}: {got!r} has no {want['$has']}")
        elif isinstance(want, dict):
            assert isinstance(got, dict), f"{where}: {got!r} is no object"
            for key, matcher in want.items():
                if matcher == "$absent":
                    assert key not in got, f"{where}: .{key} is there"
                else:
                    assert key in got, f"{where}: .{key} is not there"
                    self.match(matcher, got[key], f"{where} .{key}")
        elif isinstance(want, list):
            assert isinstance(got, list) and len(got) == len(want), f"{where}: {got!r} is not {want!r}"
            for one, other in zip(want, got):
                self.match(one, other, where)
        else:
            assert got == want and isinstance(got, bool) == isinstance(want, bool), f"{where}: {got!r} is not {want!r}"


def matches(word: str, got: Any) -> bool:
    number = isinstance(got, (int, float)) and not isinstance(got, bool)
    if word.startswith("$/"):
        return isinstance(got, str) and re.search(word[2:-1], got) is not None
    if word == "$time":
        return isinstance(got, str) and got.endswith("Z") and datetime.fromisoformat(got[:19]) is not None
    return {
        "$any": lambda: True, "$string": lambda: isinstance(got, str), "$number": lambda: number,
        "$int": lambda: number and int(got) == got, "$bool": lambda: isinstance(got, bool),
        "$list": lambda: isinstance(got, list),
        "$id": lambda: isinstance(got, str) and re.fullmatch("[a-z0-9]{24,40}", got) is not None,
    }[word]()

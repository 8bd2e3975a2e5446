"""Templates, against the daemon of paper."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from pathlib import Path
from typing import List

import pytest

import berm
from berm import AsyncClient, Client
from stub import TOKEN, Stub


def test_life(stub: Stub, client: Client) -> None:
    made = client.templates.import_archive("a/b:c", b"archive", user="root", env={"A": "b"}, workdir="/srv")
    assert made.name == "a/b:c" and made.root and made.size_bytes == 7
    assert stub.seen[-1][1] == "/v1/templates/import?name=a%2Fb%3Ac&user=root&workdir=%2Fsrv&env=A%3Db"
    with pytest.raises(berm.ConflictError) as there:
        client.templates.import_archive("a/b:c", io.BytesIO(b"again"))
    assert there.value.code == "template.exists"
    client.templates.import_archive("a/b:c", iter([b"ag", b"ain"]), replace=True)
    assert [t.name for t in client.templates.list()] == ["host", "a/b:c"]
    assert client.templates()[0]["name"] == "host"  # as it was before there were objects
    assert client.templates.get("a/b:c").source == "archive"
    assert b"".join(client.templates.export("a/b:c", "docker")) == b"again"
    client.templates.delete("a/b:c")
    for call in (client.templates.get, client.templates.delete):
        for name in ("a/b:c", "..", ""):
            with pytest.raises(berm.NotFoundError):
                call(name)


def test_pull(stub: Stub, client: Client) -> None:
    assert client.templates.pull("a.test/x:1", user="root", replace=True).name == "a.test/x:1"
    (build,) = stub.builds.values()
    assert build["asked"] == {"image_ref": "a.test/x:1", "replace": True, "config": {"user": "root"}}
    with pytest.raises(berm.BuildFailed) as failed:
        client.templates.pull("a.test/x:1", name="fail")
    assert failed.value.code == "template.build-failed" and failed.value.hint and failed.value.build.name == "fail"
    assert [b.status for b in client.templates.builds()] == ["done", "failed"]
    with pytest.raises(berm.NotFoundError):
        client.templates.get_build("../x")


def test_build(stub: Stub, client: Client, tmp_path: Path) -> None:
    lines: List[str] = []
    made = client.templates.build("ci", recipe="code-interpreter", on_line=lines.append)
    assert made.name == "ci" and lines == ["step 1/2", "step 2/2: caf\u00e9"]
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text("print()")
    started = client.templates.start("web", dockerfile="FROM host\nCOPY . /", context=tmp_path, build_args={"V": "2"},
                                     limits=berm.Limits(cpus=2), egress=["a.test:443"])
    build = stub.builds[started.id]
    assert build["asked"] == {"name": "web", "dockerfile": "FROM host\nCOPY . /", "build_args": {"V": "2"}, "limits": {"cpus": 2},
                              "egress": ["a.test:443"]}
    head, tar = build["body"].split(b"application/x-tar\r\n\r\n")
    tar = tar[:tar.rindex(b"\r\n--")]
    assert b'name="request"; filename="request"' in head
    assert tarfile.open(fileobj=io.BytesIO(tar)).getnames() == ["app", "app/a.py"]
    client.templates.cancel(started.id)
    assert client.templates.get_build(started.id).status == "failed"
    with pytest.raises(berm.TimeoutError):
        client.templates.build("never", debs=["git"], timeout_seconds=-1)


def test_lines_come_once(stub: Stub, client: Client) -> None:
    started = client.templates.start("x", recipe="y")
    stub.fault(r"GET /v1/templates/builds/.*/logs", ("cut", 1))
    stub.fault(r"GET /v1/templates/builds/.*/logs", "drop")
    assert list(client.templates.logs(started.id)) == ["step 1/2", "step 2/2: caf\u00e9"]


def test_async(stub: Stub) -> None:
    async def go() -> None:
        async with AsyncClient(stub.url, TOKEN) as client:
            await client.templates.import_archive("mine", b"archive")
            assert [t.name for t in await client.templates.list()] == ["host", "mine"]
            assert (await client.templates())[1]["name"] == "mine"
            assert b"".join([p async for p in client.templates.export("mine")]) == b"archive"
            lines: List[str] = []

            async def take(line: str) -> None:
                lines.append(line)

            made = await client.templates.build("web", dockerfile="FROM host", context=b"tar", on_line=take)
            assert made.name == "web" and len(lines) == 2
            assert b"\r\n\r\ntar\r\n--" in list(stub.builds.values())[0]["body"]

    asyncio.run(go())
    assert json.loads(json.dumps(stub.templates["mine"]))["name"] == "mine"

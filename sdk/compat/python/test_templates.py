"""Templates as the SDK makes them: an archive, and a Dockerfile on top of it."""

from __future__ import annotations

import io
import tarfile
import uuid
from pathlib import Path
from typing import Any, Iterator

import pytest
from pandastack import NotFoundError, PandastackError


@pytest.fixture
def name(client: Any) -> Iterator[str]:
    name = "compat-" + uuid.uuid4().hex[:8]
    yield name
    for one in client.templates.list():
        if one.name.startswith(name):
            client.templates.delete(one.name)


@pytest.fixture
def rootfs(tmp_path: Path) -> str:
    path = tmp_path / "rootfs.tar"
    with tarfile.open(path, "w") as tar:
        for folder in ("etc", "bin"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        info = tarfile.TarInfo("etc/motd")
        info.size = 6
        tar.addfile(info, io.BytesIO(b"hello\n"))
    return str(path)


def test_rootfs(client: Any, name: str, rootfs: str) -> None:
    build = client.templates.build(name, rootfs_tar=rootfs)
    assert build.id and build.name == name
    done = client.templates.wait_for_build(build.id, poll_interval=0.2, timeout_seconds=60)
    assert done.is_done and not done.error
    assert client.templates.get(name).name == name
    assert name in [t.name for t in client.templates.list()]
    assert build.id in [b.id for b in client.templates.builds()]
    with pytest.raises(PandastackError) as again:
        client.templates.build(name, rootfs_tar=rootfs)
    assert "already" in str(again.value)
    client.templates.delete(name)
    with pytest.raises(NotFoundError):
        client.templates.get(name)


def test_dockerfile_and_its_lines(client: Any, name: str, rootfs: str, tmp_path: Path) -> None:
    client.templates.wait_for_build(client.templates.build(name, rootfs_tar=rootfs).id, poll_interval=0.2, timeout_seconds=60)
    context = tmp_path / "context"
    (context / "src").mkdir(parents=True)
    (context / "src" / "app.txt").write_text("app")
    build = client.templates.build_from_dockerfile(
        name + "-two", f"FROM {name}\nENV A=b\nCOPY src /srv\n", context_dir=str(context))
    lines = list(client.templates.build_logs(build.id))
    assert any("COPY src /srv" in line for line in lines), lines
    assert client.templates.wait_for_build(build.id, poll_interval=0.2, timeout_seconds=60).is_done
    assert list(client.templates.build_logs(build.id, follow=False)) == lines


def test_a_build_that_fails(client: Any, name: str) -> None:
    build = client.templates.build_from_dockerfile(name, "FROM no-such-template-here\n")
    for _ in client.templates.build_logs(build.id):
        pass
    done = client.templates.get_build(build.id)
    assert done.is_failed and done.error

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pandastack import BadRequestError, NotFoundError, Sandbox


@pytest.mark.parametrize(
    "path, content",
    [
        ("/tmp/a.txt", "text \u00e5\n"), ("/tmp/deep/er/b", b"\x00\xff\x80"), ("/tmp/empty", b""),
        ("/tmp/with blank + plus %20 &?#.txt", b"x"), ("/tmp/\u00fcml\u00e4ut", "x"), ("/run/creds.json", "{}"),
        ("/workspace/step.py", "print(1)"),
    ],
)
def test_write_and_read(box: Sandbox, path: str, content: object) -> None:
    data = content.encode() if isinstance(content, str) else content
    got = box.filesystem.write(path, content)
    assert (got["path"], got["bytes"]) == (path, len(data))
    assert box.filesystem.read(path) == data
    info = box.filesystem.stat(path)
    assert (info.path, info.size, info.is_dir) == (path, len(data), False)
    assert abs(info.mtime - time.time()) < 600


def test_large(box: Sandbox, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(bytes(range(256)) * (48 << 12))  # 48 MiB, more than their server takes
    box.filesystem.upload(local, "/tmp/large")
    assert box.exec("wc -c < /tmp/large").stdout.strip() == str(48 << 20)
    box.filesystem.download("/tmp/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == local.read_bytes()
    box.exec("rm /tmp/large")


def test_what_exec_sees(box: Sandbox) -> None:
    box.filesystem.write("/workspace/run.py", "print(open('/run/c.json').read())")
    box.filesystem.write("/run/c.json", "secret")
    assert box.exec("python3 /workspace/run.py").stdout == "secret\n"
    box.exec("echo made > /tmp/made")
    assert box.filesystem.read("/tmp/made") == b"made\n"


def test_credentials_are_the_users_alone(box: Sandbox) -> None:
    box.filesystem.write("/run/creds.json", "{}")
    assert box.exec("stat -c %a /run/creds.json").stdout.strip() == "600"


def test_missing(box: Sandbox) -> None:
    for call in (box.filesystem.read, box.filesystem.stat, box.filesystem.listdir):
        with pytest.raises(NotFoundError):
            call("/no/such")
    assert box.filesystem.exists("/no/such") is False
    assert box.filesystem.exists("/tmp") is True


def test_relative(box: Sandbox) -> None:
    for call in (box.filesystem.read, box.filesystem.stat, box.filesystem.listdir):
        with pytest.raises(BadRequestError):
            call("tmp/x")
    with pytest.raises(BadRequestError):
        box.filesystem.write("x", "y")


def test_list_and_walk(box: Sandbox) -> None:
    box.exec("mkdir -p /tmp/tree/sub /tmp/tree/none; echo 1 > /tmp/tree/f; echo 22 > /tmp/tree/sub/g;"
             "ln -s /tmp /tmp/tree/link; ln -s /tmp/tree /tmp/tree/sub/loop", check=True)
    entries = {e.name: e for e in box.filesystem.listdir("/tmp/tree")}
    assert sorted(entries) == ["f", "link", "none", "sub"]
    assert entries["sub"].is_dir and not entries["f"].is_dir and not entries["link"].is_dir
    assert entries["f"].path == "/tmp/tree/f" and entries["f"].size == 2
    assert box.filesystem.listdir("/tmp/tree/none") == []
    walked = {d: sorted(f.name for f in files) for d, _, files in box.filesystem.walk("/tmp/tree")}
    assert walked == {"/tmp/tree": ["f", "link"], "/tmp/tree/none": [], "/tmp/tree/sub": ["g", "loop"]}

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import berm
from berm.config import resolve, state_dir
from stub import Stub


def test_order(tmp_path: Path) -> None:
    env = {"BERM_URL": "http://127.0.0.1:7070/v1/", "BERM_TOKEN": "t"}
    got = resolve(environ=env)
    assert (got.url, got.token, got.socket, got.local) == ("http://127.0.0.1:7070", "t", "", True)
    assert resolve("https://host:1", "a", environ=env).token == "a"
    assert not resolve("https://host:1", environ=env).local
    assert resolve("unix:///x/berm.sock", environ=env).socket == "/x/berm.sock"
    for bad in ("ftp://x", "host:7070", "http://"):
        with pytest.raises(berm.BermError):
            resolve(bad)


def test_state_directory(tmp_path: Path) -> None:
    env = {"BERM_STATE": str(tmp_path)}
    assert state_dir(env) == tmp_path
    with pytest.raises(berm.BermError) as absent:
        resolve(environ=env)
    assert absent.value.hint
    (tmp_path / "token").write_text("e2b_x\n")
    (tmp_path / "url").write_text("http://127.0.0.1:7\n")
    assert (resolve(environ=env).url, resolve(environ=env).token) == ("http://127.0.0.1:7", "e2b_x")
    # The file's token is that daemon's: another address never gets it.
    assert resolve("http://127.0.0.1:8", environ=env).token == ""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "berm.sock"))
        got = resolve(environ=env)
        assert (got.socket, got.token, got.local) == (str(tmp_path / "berm.sock"), "e2b_x", True)
        # A named state directory wins over the environment's address.
        assert resolve(state=str(tmp_path), environ={"BERM_URL": "http://x"}).socket
    assert state_dir({"XDG_STATE_HOME": "/s", "HOME": "/h"}) in (Path("/s/berm"), Path("/var/lib/berm"))


def test_proxies_of_the_environment_stay_out(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    from stub import TOKEN

    with berm.Client(stub.url, TOKEN, retry_seconds=0) as client:
        assert client.version()["version"] == "stub"

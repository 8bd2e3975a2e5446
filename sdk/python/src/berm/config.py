"""Where the daemon is: BERM_URL and BERM_TOKEN, else the socket and the token
file of the state directory in force."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Union
from urllib.parse import urlsplit

from .errors import BermError

__all__ = ["Config", "resolve", "state_dir"]


@dataclass(frozen=True)
class Config:
    """A daemon's address and the token for it."""

    url: str
    token: str = ""
    #: The unix socket to connect to, whatever ``url`` says; "" for TCP.
    socket: str = ""

    def __repr__(self) -> str:  # a token never reaches a log by accident
        return f"Config(url={self.url!r}, socket={self.socket!r})"

    @property
    def local(self) -> bool:
        """On this machine, so no proxy of the environment may come between."""
        if self.socket:
            return True
        host = urlsplit(self.url).hostname or ""
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def state_dir(environ: Optional[Mapping[str, str]] = None) -> Path:
    """The state directory in force, as the command line has it."""
    env = os.environ if environ is None else environ
    if env.get("BERM_STATE"):
        return Path(env["BERM_STATE"])
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/berm")
    if env.get("XDG_STATE_HOME"):
        return Path(env["XDG_STATE_HOME"]) / "berm"
    return Path(env.get("HOME") or Path.home()) / ".local" / "state" / "berm"


def resolve(
    url: Optional[str] = None,
    token: Optional[str] = None,
    state: Union[str, "os.PathLike[str]", None] = None,
    environ: Optional[Mapping[str, str]] = None,
) -> Config:
    """Arguments win over the environment, and that over the state directory.
    The token of the state directory is for that daemon only: with a ``url`` it
    is never sent."""
    env = os.environ if environ is None else environ
    if state is None:
        url = url or env.get("BERM_URL") or None
    if url:
        return _with_url(url, token if token is not None else env.get("BERM_TOKEN", ""))
    directory = Path(state) if state is not None else state_dir(env)
    if token is None and state is None:
        token = env.get("BERM_TOKEN") or None
    if token is None:
        token = _read(directory / "token")
    socket = directory / "berm.sock"
    if _exists(socket):
        return Config(url="http://berm", token=token, socket=str(socket))
    address = _read(directory / "url")
    if address:
        return _with_url(address, token)
    raise BermError(
        f"there is no daemon: {socket} does not exist and BERM_URL is not set",
        code="daemon.absent", hint="berm serve, or set BERM_URL and BERM_TOKEN",
    )


def _with_url(url: str, token: str) -> Config:
    url = url.strip()
    if url.startswith("unix://"):
        return Config(url="http://berm", token=token.strip(), socket=url[len("unix://"):])
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BermError(f"{url!r} is not an address of a daemon", code="request.invalid",
                        hint="BERM_URL=http://127.0.0.1:7070, or unix:///path/to/berm.sock")
    url = url.rstrip("/")
    if url.endswith("/v1"):
        url = url[: -len("/v1")]
    return Config(url=url, token=token.strip())


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as f:
            return f.read(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _exists(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        return False

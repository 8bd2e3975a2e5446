# Made from ../_async/files.py by scripts/unasync.py; edit that one.
from __future__ import annotations

import os
import secrets
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Sequence, Tuple, Union

import httpx

from .. import _sio as io
from .. import _wire as wire
from .. import errors
from ..models import FileEvent, FileInfo, Written, take

if TYPE_CHECKING:
    from .sandbox import Sandbox

#: What ``read`` holds in memory when the caller names no bound.
MAX_READ = 256 << 20


class Filesystem:
    """The files of a sandbox. Paths are absolute, inside it."""

    def __init__(self, sandbox: "Sandbox") -> None:
        self._sandbox = sandbox
        self._client = sandbox.client

    def _path(self, *rest: str) -> str:
        return wire.sandbox_path(self._sandbox.id, *rest)

    def write(self, path: str, content: Any, *, mode: Optional[int] = None) -> Written:
        """Makes or replaces a file. ``content`` is text, bytes, a file object
        or an iterable of bytes, of any size. The file appears under its name
        when it is complete; its folders are made."""
        params = {"path": path}
        if mode is not None:
            params["mode"] = f"{mode:04o}"
        if isinstance(content, str):
            content = content.encode()
        if isinstance(content, (bytes, bytearray, memoryview)):
            retry = wire.Retry(self._client.retry_seconds, safe=True)  # twice is the same as once
            content = bytes(content)
        else:
            retry = wire.Retry(0, safe=False)  # what was read of it cannot be read again
            content = io.pieces(content)
        got = self._client.json(
            "PUT", self._path("fs"), params=params, content=content, retry=retry,
            headers={"Content-Type": "application/octet-stream"})
        return take(Written, {"path": path, **(got or {})})

    def read(self, path: str, *, max_bytes: int = MAX_READ) -> bytes:
        """A file's bytes, held in memory; larger ones than ``max_bytes`` raise
        TooLargeError and want :meth:`stream` or :meth:`download`."""
        return self._client.request("GET", self._path("fs"), params={"path": path}, limit=max_bytes)

    def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = MAX_READ) -> str:
        return (self.read(path, max_bytes=max_bytes)).decode(encoding, errors)

    def stream(self, path: str) -> Iterator[bytes]:
        """A file's bytes, a piece at a time."""
        for piece in self._pieces("GET", self._path("fs"), {"path": path}):
            yield piece

    def list(self, path: str = "/workspace") -> List[FileInfo]:
        """What is in a folder."""
        got = self._client.json("GET", self._path("fs", "dir"), params={"path": path}) or {}
        if got.get("more"):
            warnings.warn(f"{path} holds more than the daemon lists", RuntimeWarning, stacklevel=2)
        return [_entry(e, path) for e in got.get("entries") or []]

    def listdir(self, path: str = "/workspace") -> List[FileInfo]:
        """The same as :meth:`list`."""
        return self.list(path)

    def stat(self, path: str) -> FileInfo:
        """One file or folder; NotFoundError if there is none."""
        return _entry(self._client.json("GET", self._path("fs", "stat"), params={"path": path}), "", path)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except errors.NotFoundError as err:
            if err.code in ("sandbox.not-found", "request.no-route"):
                raise
            return False
        return True

    def mkdir(self, path: str) -> None:
        """Makes a folder and those above it; one that is there is fine."""
        self._client.request(
            "POST", self._path("fs", "dir"), params={"path": path}, retry=self._again())

    def move(self, source: str, target: str) -> None:
        """Renames; what was at ``target`` is replaced."""
        self._client.request("POST", self._path("fs", "move"), json={"from": source, "to": target})

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all that is in it."""
        self._client.request("DELETE", self._path("fs"), params={"path": path})

    def walk(self, path: str = "/workspace") -> Iterator[Tuple[str, List[FileInfo], List[FileInfo]]]:
        """``(folder, folders in it, files in it)`` from the top down, as
        ``os.walk``; links are not followed, and a folder that is gone by the
        time it is looked at is left out."""
        todo = [path]
        while todo:
            here = todo.pop(0)
            try:
                entries = self.list(here)
            except errors.NotFoundError as err:
                if here == path or err.code == "sandbox.not-found":
                    raise
                continue
            folders = [e for e in entries if e.is_dir]
            yield here, folders, [e for e in entries if not e.is_dir]
            todo[:0] = [f.path for f in folders]

    def upload(self, local: Union[str, "os.PathLike[str]"], remote: str, *, mode: Optional[int] = None) -> Written:
        """Copies a local file in, as a stream."""
        file = io.run(open, local, "rb")
        try:
            return self.write(remote, file, mode=mode)
        finally:
            file.close()

    def download(self, remote: str, local: Union[str, "os.PathLike[str]"]) -> int:
        """Copies a file out, as a stream. The local file appears under its name
        when it is complete. Returns its size."""
        target = Path(local)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        size = 0
        try:
            with open(part, "xb") as file:
                for piece in self.stream(remote):
                    io.run(file.write, piece)
                    size += len(piece)
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return size

    def write_tar(self, path: str, tar: Any) -> None:
        """Unpacks a tar archive (bytes, a file object or an iterable of bytes)
        below a folder."""
        if isinstance(tar, (bytes, bytearray, memoryview)):
            tar = bytes(tar)
        else:
            tar = io.pieces(tar)
        self._client.request(
            "PUT", self._path("archive"), params={"path": path}, content=tar, retry=wire.Retry(0, safe=False),
            headers={"Content-Type": "application/x-tar"})

    def read_tar(self, path: str, names: Sequence[str] = ()) -> Iterator[bytes]:
        """A folder, or the named entries of it, as a tar archive, a piece at a
        time. Names in it were chosen inside: unpack with ``filter="data"``."""
        params: List[Any] = [("path", path), *(("name", n) for n in names)]
        for piece in self._pieces("GET", self._path("archive"), params):
            yield piece

    def watch(self, path: str, *, recursive: bool = False) -> Iterator[FileEvent]:
        """Changes below a folder as they happen, until the caller leaves. The
        first event has ``op`` "ready": from there on nothing is missed, or "lost" says so."""
        params = {"path": path, "recursive": wire.switch(recursive)}
        response = self._client.open("GET", self._path("fs", "watch"), params=params)
        try:
            for name, data in self._client.events_of(response):
                if name == "ready":
                    yield FileEvent("ready", path)
                elif name == "change":
                    yield take(FileEvent, wire.event_object(data))
                elif name == "error":
                    wire.Follower().event(name, data)
        except httpx.TransportError as err:
            raise wire.transport_error(err, f"watch {path}") from err
        finally:
            response.close()

    def _again(self) -> wire.Retry:
        return wire.Retry(self._client.retry_seconds, safe=True)

    def _pieces(self, method: str, path: str, params: Any) -> Iterator[bytes]:
        response = self._client.open(method, path, params=params)
        try:
            for piece in response.iter_raw(io.CHUNK):
                yield piece
        except httpx.TransportError as err:
            raise wire.transport_error(err, f"{method} {path}") from err
        finally:
            response.close()


def _entry(got: Any, parent: str, path: str = "") -> FileInfo:
    info = take(FileInfo, got)
    full = path or info.path or (parent.rstrip("/") + "/" + info.name)
    name = info.name or full.rstrip("/").rsplit("/", 1)[-1]
    return FileInfo(name, full, info.is_dir, int(info.size), str(info.mode), int(info.mtime), info.kind, int(info.perm))

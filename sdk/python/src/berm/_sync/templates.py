# Made from ../_async/templates.py by scripts/unasync.py; edit that one.
from __future__ import annotations

import os
import tarfile
import tempfile
import time
from typing import TYPE_CHECKING, Any, Iterator, Callable, Dict, List, Mapping, Optional, Sequence, Union

import httpx

from .. import _sio as io
from .. import _wire as wire
from .. import errors
from ..models import Build, Limits, Template, take

if TYPE_CHECKING:
    from .client import Client


class Templates:
    """What sandboxes start from. To make and remove takes the role operator."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def __call__(self) -> List[Dict[str, Any]]:
        """All of them as they came; :meth:`list` has them as objects."""
        return list(self._client.json("GET", "/v1/templates") or [])

    def list(self) -> List[Template]:
        return [take(Template, one) for one in self._client.json("GET", "/v1/templates") or []]

    def get(self, name: str) -> Template:
        return take(Template, self._client.json("GET", wire.template_path(name)))

    def delete(self, name: str) -> None:
        """Forgets a template; sandboxes that run from it go on."""
        self._client.request("DELETE", wire.template_path(name))

    def import_archive(
        self,
        name: str,
        archive: Any,
        *,
        user: Optional[str] = None,
        workdir: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        platform: Optional[str] = None,
        replace: bool = False,
    ) -> Template:
        """Makes a template from an archive (bytes, a file object or an iterable
        of bytes): a tar of a root file system, what ``docker save`` writes, or
        an OCI layout, compressed or not. ``user="root"`` lets commands be root,
        inside."""
        params: List[Any] = [("name", name)]
        for key, value in (("user", user), ("workdir", workdir), ("platform", platform), ("replace", "1" if replace else None)):
            if value is not None:
                params.append((key, value))
        params += [("env", f"{k}={v}") for k, v in (env or {}).items()]
        content = bytes(archive) if isinstance(archive, (bytes, bytearray, memoryview)) else io.pieces(archive)
        return take(Template, self._client.json(
            "POST", "/v1/templates/import", params=params, content=content, retry=wire.Retry(0, safe=False),
            headers={"Content-Type": "application/x-tar"}))

    def export(self, name: str, format: str = "oci") -> Iterator[bytes]:
        """A template as an archive, a piece at a time: ``"oci"``, ``"docker"``
        (what ``docker load`` takes) or ``"tar"`` (its plain files)."""
        response = self._client.open("GET", wire.template_path(name, "export"), params={"format": format})
        try:
            for piece in response.iter_raw(io.CHUNK):
                yield piece
        except httpx.TransportError as err:
            raise wire.transport_error(err, f"export {name}") from err
        finally:
            response.close()

    def pull(
        self,
        image: str,
        *,
        name: Optional[str] = None,
        platform: Optional[str] = None,
        user: Optional[str] = None,
        plain_http: bool = False,
        replace: bool = False,
        timeout_seconds: Optional[float] = None,
    ) -> Template:
        """Pulls an image of a registry, once, and waits for it."""
        body = wire.build_body(
            image_ref=image, name=name, platform=platform, plain_http=plain_http, replace=replace,
            config={"user": user} if user else None)
        started = take(Build, self._client.json("POST", "/v1/templates/pull", json=body))
        return self.wait(started.id, timeout_seconds=timeout_seconds)

    def build(
        self,
        name: str,
        *,
        on_line: Optional[Callable[[str], Any]] = None,
        timeout_seconds: Optional[float] = None,
        **what: Any,
    ) -> Template:
        """Builds a template and waits for it; see :meth:`start` for what it is
        built of. ``on_line`` gets each line that the build writes. A build that
        fails raises BuildFailed."""
        started = self.start(name, **what)
        if on_line is not None:
            for line in self.logs(started.id):
                io.call(on_line, line)
        return self.wait(started.id, timeout_seconds=timeout_seconds)

    def start(
        self,
        name: str,
        *,
        recipe: Optional[str] = None,
        dockerfile: Optional[str] = None,
        context: Any = None,
        debs: Sequence[str] = (),
        suite: Optional[str] = None,
        from_template: Optional[str] = None,
        pips: Sequence[str] = (),
        npms: Sequence[str] = (),
        build_args: Optional[Mapping[str, str]] = None,
        egress: Sequence[str] = (),
        user: Optional[str] = None,
        limits: Union[Limits, Mapping[str, Any], None] = None,
        no_cache: bool = False,
        replace: bool = False,
    ) -> Build:
        """Starts a build and returns it at once.

        :param recipe: one that the daemon brings along, as ``"code-interpreter"``.
        :param dockerfile: the text of a Dockerfile.
        :param context: what it copies from: a folder, or a tar as bytes, a file
            object or an iterable of bytes.
        :param debs: packages of a Debian or Ubuntu release.
        :param egress: what steps may reach beside the package registries.
        :param user: ``"root"`` lets commands of the template be root, inside.
        """
        if isinstance(limits, Limits):
            limits = limits.wire()
        body = wire.build_body(
            name=name, recipe=recipe, dockerfile=dockerfile, debs=list(debs), suite=suite, pips=list(pips), npms=list(npms),
            build_args=dict(build_args or {}), egress=list(egress), limits=dict(limits or {}), no_cache=no_cache, replace=replace,
            config={"user": user} if user else None, **{"from": from_template})
        if context is None:
            return take(Build, self._client.json("POST", "/v1/templates/build", json=body))
        folder = None
        if isinstance(context, (str, os.PathLike)):
            folder = context = io.run(_packed, os.fspath(context))
        try:
            boundary = wire.new_key()
            return take(Build, self._client.json(
                "POST", "/v1/templates/build", content=_form(boundary, body, context), retry=wire.Retry(0, safe=False),
                headers={"Content-Type": f"multipart/form-data; boundary={boundary}"}))
        finally:
            if folder is not None:
                folder.close()

    def builds(self) -> List[Build]:
        """Those that run or have run lately, the newest first."""
        return [take(Build, one) for one in self._client.json("GET", "/v1/templates/builds") or []]

    def get_build(self, build_id: str) -> Build:
        return take(Build, self._client.json("GET", wire.build_path(build_id)))

    def cancel(self, build_id: str) -> None:
        """Ends a build that runs."""
        self._client.request("DELETE", wire.build_path(build_id))

    def logs(self, build_id: str, *, follow: bool = True) -> Iterator[str]:
        """The lines of a build, until it is over; without ``follow`` those that
        are there. Each comes once, over breaks of the connection too."""
        told, tries = 0, 0
        while True:
            seen, before = 0, told
            try:
                response = self._client.open("GET", wire.build_path(build_id, "logs"), params={"follow": wire.switch(follow)})
                for name, data in self._client.events_of(response):
                    if name == "error":
                        wire.Follower().event(name, data)
                    elif data == "end":
                        return
                    else:
                        seen += 1
                        if seen > told:
                            told = seen
                            yield data
                failed: Exception = errors.ConnectionError("the lines of the build broke off", code="client.stream")
            except httpx.TransportError as err:
                failed = wire.transport_error(err, "the lines of a build")
            tries = 0 if told > before else tries + 1
            if tries > 3:
                raise failed
            io.sleep(0.2 * 2**tries)

    def wait(self, build_id: str, *, timeout_seconds: Optional[float] = None, poll_seconds: float = 0.5) -> Template:
        """Waits for the end of a build: its template, or BuildFailed. After
        ``timeout_seconds`` it raises TimeoutError, and the build goes on."""
        began = time.monotonic()
        while True:
            build = self.get_build(build_id)
            if build.status == "done":
                return take(Template, build.template) if build.template else self.get(build.name)
            if build.status == "failed":
                raise errors.BuildFailed(build)
            if timeout_seconds is not None and time.monotonic() - began > timeout_seconds:
                raise errors.TimeoutError(f"the build of {build.name} goes on after {timeout_seconds:g} s", code="client.timeout")
            io.sleep(poll_seconds)


def _packed(folder: str) -> Any:
    """A folder as a tar file without a name."""
    file = tempfile.TemporaryFile()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(folder)):
            tar.add(os.path.join(folder, name), arcname=name)
    file.seek(0)
    return file


def _form(boundary: str, body: Mapping[str, Any], context: Any) -> Iterator[bytes]:
    """The request and the context as a form, a piece at a time."""
    yield wire.part(boundary, "request", "application/json") + wire.encode_json(body)
    yield b"\r\n" + wire.part(boundary, "context", "application/x-tar")
    if isinstance(context, (bytes, bytearray, memoryview)):
        yield bytes(context)
    else:
        for piece in io.pieces(context):
            yield piece
    yield f"\r\n--{boundary}--\r\n".encode()

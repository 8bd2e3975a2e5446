"""What can go wrong, as types.

Every error that the daemon answers carries its ``code`` (``noun.reason``), a
``hint`` (what to do next), the HTTP ``status`` and the ``request_id`` that finds
the request in the daemon's log.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .models import Build, ExecResult

__all__ = [
    "AuthError", "BadRequestError", "BermError", "BuildFailed", "CapacityError", "CommandFailed",
    "CommandTimeout", "ConflictError", "ConnectionError", "ExecInterrupted",
    "ForbiddenError", "NotFoundError", "QuotaError", "SandboxEndedError",
    "SandboxPausedError", "ServerError", "TimeoutError", "TooLargeError", "UnsupportedError",
]


class BermError(Exception):
    """Whatever this package raises on purpose."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        status: int = 0,
        request_id: str = "",
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.status = status
        self.request_id = request_id
        #: Seconds after which another try may work, where the daemon knows.
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = self.message
        if self.hint:
            text += f" (try: {self.hint})"
        if self.request_id:
            text += f" [request {self.request_id}]"
        return text


class ConnectionError(BermError, builtins.ConnectionError):
    """The daemon could not be reached, or the connection broke."""


class TimeoutError(BermError, builtins.TimeoutError):
    """No answer in time: from the daemon, or from the sandbox behind it."""


class AuthError(BermError):
    """There is no token, or it is unknown, revoked or expired (401)."""


class ForbiddenError(BermError):
    """The token's role or ceiling does not allow this (403)."""


class BadRequestError(BermError):
    """The request cannot be right, whoever asks (400, 413, 422)."""


class TooLargeError(BadRequestError):
    """More bytes than the bound allows, on either side (413)."""


class NotFoundError(BermError):
    """No such thing in this tenant (404)."""


class ConflictError(BermError):
    """Not in this state, or another request holds it (409)."""


class SandboxPausedError(ConflictError):
    """The sandbox is paused: resume it first."""


class SandboxEndedError(BermError):
    """The sandbox has ended; its report says how (410)."""


class QuotaError(BermError):
    """A quota or rate of the tenant (429). ``retry_after`` is None where
    waiting does not help."""


class CapacityError(BermError):
    """The node is full or stopping; nothing was done (503, 507)."""


class UnsupportedError(BermError):
    """This part of Berm does not exist on that daemon (501)."""


class ServerError(BermError):
    """The daemon or its host failed (other 5xx)."""


class ExecInterrupted(BermError):
    """The connection broke and the command's fate could not be learnt. It may
    have ended, or still run: :meth:`Sandbox.process` with ``exec_id`` asks again.
    """

    def __init__(self, message: str, *, exec_id: str, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.exec_id = exec_id
        self.stdout = stdout
        self.stderr = stderr


class CommandFailed(BermError):
    """``check=True`` and the command did not end with 0."""

    def __init__(self, message: str, result: "ExecResult") -> None:
        super().__init__(message)
        self.result = result
        self.exit_code = result.exit_code
        self.stdout = result.stdout
        self.stderr = result.stderr


class CommandTimeout(CommandFailed, builtins.TimeoutError):
    """``check=True`` and time ended the command; what it wrote is here."""


class BuildFailed(BermError):
    """A template was not made. ``build`` says what of; its lines say more."""

    def __init__(self, build: "Build") -> None:
        super().__init__(build.error or "the build failed", code=build.code, hint=build.hint)
        self.build = build


_BY_CODE = {
    "sandbox.paused": SandboxPausedError,
    "sandbox.ended": SandboxEndedError,
    "guest.silent": TimeoutError,
    "request.too-large": TooLargeError,
    "file.too-large": TooLargeError,
}

_BY_STATUS = {
    401: AuthError, 403: ForbiddenError, 404: NotFoundError, 408: TimeoutError,
    409: ConflictError, 410: SandboxEndedError, 413: TooLargeError, 429: QuotaError,
    501: UnsupportedError, 503: CapacityError, 504: TimeoutError, 507: CapacityError,
}


def for_answer(status: int, body: object, *, request_id: str = "", retry_after: Optional[float] = None) -> BermError:
    """The error of an answer: its status and its decoded body."""
    text, code, hint = "", "", ""
    if isinstance(body, dict):
        text = body["error"] if isinstance(body.get("error"), str) else ""
        code = body["code"] if isinstance(body.get("code"), str) else ""
        hint = body["hint"] if isinstance(body.get("hint"), str) else ""
        if isinstance(body.get("request_id"), str):
            request_id = body["request_id"] or request_id
    elif isinstance(body, str):
        text = body.strip()
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else BadRequestError
    return kind(
        text or f"the daemon answered {status}",
        code=code, hint=hint, status=status, request_id=request_id, retry_after=retry_after,
    )

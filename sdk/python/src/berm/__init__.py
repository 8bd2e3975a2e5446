"""Client of Berm: disposable sandboxes for code that nobody reviewed.

    from berm import Sandbox

    with Sandbox.create(ttl_seconds=120) as sbx:
        sbx.filesystem.write("/workspace/step.py", code)
        result = sbx.exec("python3 step.py", timeout_seconds=90)
        print(result.exit_code, result.stdout)

``Sandbox`` and ``Client`` block, ``AsyncSandbox`` and ``AsyncClient`` are for
asyncio; they are the same otherwise.
"""

from ._async.client import AsyncClient
from ._async.files import AsyncFilesystem
from ._async.process import AsyncExecStream, AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._async.templates import AsyncTemplates
from ._sio import close_shared
from ._sync.client import Client
from ._sync.files import Filesystem
from ._sync.process import ExecStream, Process
from ._sync.sandbox import Sandbox
from ._sync.templates import Templates
from .errors import (
    AuthError, BadRequestError, BermError, BuildFailed, CapacityError, CommandFailed, CommandTimeout, ConflictError,
    ConnectionError, ExecInterrupted, ForbiddenError, NotFoundError, QuotaError, SandboxEndedError,
    SandboxPausedError, ServerError, TimeoutError, TooLargeError, UnsupportedError,
)
from .models import (
    Build, Denial, EgressState, Event, ExecInfo, ExecResult, FileEvent, FileInfo, Lifecycle, Limits, LogLine, Metrics,
    OutputChunk, Port, SandboxInfo, Template, Truncated, Written,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "AsyncExecStream", "AsyncFilesystem", "AsyncProcess", "AsyncSandbox", "AsyncTemplates", "AuthError",
    "BadRequestError", "BermError", "Build", "BuildFailed", "CapacityError", "Client", "CommandFailed", "CommandTimeout",
    "ConflictError", "ConnectionError", "Denial", "EgressState", "Event", "ExecInfo", "ExecInterrupted", "ExecResult", "ExecStream",
    "FileEvent", "FileInfo", "Filesystem", "ForbiddenError", "Lifecycle", "Limits", "LogLine", "Metrics",
    "NotFoundError", "OutputChunk", "Port", "Process", "QuotaError", "Sandbox", "SandboxEndedError",
    "SandboxInfo", "SandboxPausedError", "ServerError", "Template", "Templates", "TimeoutError", "TooLargeError", "Truncated",
    "UnsupportedError", "Written", "close_shared", "__version__",
]

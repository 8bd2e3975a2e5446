"""Makes berm/_sync from berm/_async, or with --check says whether it is stale."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent / "src" / "berm"
HEADER = "# Made from ../_async/{} by scripts/unasync.py; edit that one.\n"
RULES = [
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b_aio\b", "_sio"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsync(Client|Sandbox|Filesystem|Process|ExecStream|Commands|Templates)\b", r"\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"\baclose\b", "close"),
    (r"\bhttpx\.AsyncClient\b", "httpx.Client"),
]


def made(source: Path) -> str:
    text = source.read_text()
    for pattern, new in RULES:
        text = re.sub(pattern, new, text)
    return (HEADER.format(source.name) + text) if text.strip() else ""


def main() -> int:
    stale = []
    for source in sorted((HERE / "_async").glob("*.py")):
        target = HERE / "_sync" / source.name
        text = made(source)
        if target.exists() and target.read_text() == text:
            continue
        stale.append(target.name)
        if "--check" not in sys.argv:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
    if stale and "--check" in sys.argv:
        print("stale: " + ", ".join(stale) + "; run scripts/unasync.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

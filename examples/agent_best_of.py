"""Several attempts at one task at the same time, each in a sandbox of its own."""

from __future__ import annotations

import asyncio

from berm import AsyncClient, ExecResult

ATTEMPTS = {
    "loop": "print(sum(i * i for i in range(1000)))",
    "formula": "n = 999; print(n * (n + 1) * (2 * n + 1) // 6)",
    "wrong": "print(undefined)",
}


async def attempt(client: AsyncClient, name: str, code: str) -> tuple[str, ExecResult]:
    # Leaving the block ends the sandbox, also when this task is cancelled.
    async with await client.create(ttl_seconds=120, tags={"run_id": "best-of", "attempt": name}) as sbx:
        await sbx.filesystem.write("/workspace/attempt.py", code)
        return name, await sbx.exec("python3 attempt.py", timeout_seconds=30)


async def main() -> None:
    async with AsyncClient() as client:
        ended = await asyncio.gather(*(attempt(client, *one) for one in ATTEMPTS.items()))
    good = {name: result.stdout.strip() for name, result in ended if result.ok}
    print("agreed on:", set(good.values()), "by", sorted(good))


if __name__ == "__main__":
    asyncio.run(main())

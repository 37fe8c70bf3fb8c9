"""A process that listens at srd://, says where, and sends back what it gets, for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.comm import listen, registry

from srd.dask.backend import SrdBackend


async def echo(comm: Any) -> None:
    while True:
        await comm.write(await comm.read())


async def main() -> None:
    registry.backends["srd"] = SrdBackend()
    listener = await listen("srd://127.0.0.1", echo)
    print(listener.contact_address, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())

"""Pulls over real sockets: 64 peers send to one endpoint at once, in turns, and every byte is compared."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN, SMALL, content, receive, send

SENDERS, PEERS = 4, 64
PATIENT = replace(SMALL.protocol, unresponsive_after_s=PATIENCE_S)  # a busy machine may stop this process for seconds
CROWDED = replace(PATIENT, incast_packets=32)
SIZES = (20_000, 100, 10_000)


@pytest.mark.parametrize("config", [SMALL, PLAIN], ids=["keys", "plain"])
async def test_many_peers__every_byte_arrives(config: EndpointConfig) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(PATIENCE_S * 2))
        crowded = replace(config, protocol=CROWDED, receive_region_bytes=80 << 20)
        receiver = await stack.enter_async_context(await Endpoint.listen("127.0.0.1", port=0, config=crowded))
        senders = [
            await stack.enter_async_context(
                await Endpoint.open(towards="127.0.0.1", config=replace(config, protocol=PATIENT))
            )
            for _ in range(SENDERS)
        ]
        pairs = [await opened(senders[index % SENDERS], receiver) for index in range(PEERS)]
        await asyncio.gather(*(exchange(here, there, seed=seed) for seed, (here, there) in enumerate(pairs)))
        pulls = receiver._engine.core._pulls
        assert pulls.is_crowded
        assert len(pulls._turns) >= PEERS // 2, "all but those that sent before they were told had to ask"


async def opened(sender: Endpoint, receiver: Endpoint) -> tuple[Peer, Peer]:
    here = await sender.connect("127.0.0.1", port=receiver.address[1])
    return here, await receiver.accept()


async def exchange(here: Peer, there: Peer, *, seed: int) -> None:
    """Send messages one way, and one back."""
    messages = [content(size, seed=seed * 10 + index) for index, size in enumerate(SIZES)]
    sending = [asyncio.ensure_future(send(here, message)) for message in messages]
    arrived = [await receive(there) for _ in messages]
    assert sorted(arrived, key=len) == sorted(messages, key=len)
    assert await asyncio.gather(*sending) == [Status.OK] * len(messages)
    assert await send(there, messages[0]) is Status.OK
    assert await receive(here) == messages[0]

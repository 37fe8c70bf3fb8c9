"""The regular transfer, as two processes: an endless stream of messages; the receiver compares every byte.

    python -m scripts.benches.hostile.transfer SECURITY receive            listening {port}
    python -m scripts.benches.hostile.transfer SECURITY send HOST PORT     sending

The reply to each line on stdin is one event with the totals so far:

    receiver   total {messages, wrong_messages, wrong_bytes, bytes, dropped}
    sender     total {bytes, failed}
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Message, Peer, Status
from srd.cli.options import run
from srd.errors import PeerError
from srd.secure.config import Keys, Plain

MESSAGE_BYTES: Final = 1 << 20
PATTERNS: Final = 8
"""Number of different messages, which are prepared in advance to save time during the transfer."""
IN_FLIGHT: Final = 6
TRANSFER_MARK: Final = 0x5A000000
"""Marks the immediates of the transfer, in addition to the message number."""


def pattern(number: int) -> npt.NDArray[np.uint8]:
    """Return the contents of message `number`; each eight bytes of it are unique."""
    lanes = (np.arange(MESSAGE_BYTES // 8, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (lanes ^ np.uint64((number % PATTERNS) << 56)).view(np.uint8)


async def receive(config: EndpointConfig) -> int:
    """Listen, and check the messages of all peers."""
    totals = {"messages": 0, "wrong_messages": 0, "wrong_bytes": 0, "bytes": 0}
    expected = [pattern(number) for number in range(PATTERNS)]

    def check(message: Message) -> bool:
        """Compare a message of the transfer, and return whether it is one."""
        number = (message.immediate or 0) ^ TRANSFER_MARK
        if message.immediate is None or number >> 24 or message.length != MESSAGE_BYTES:
            return False
        at = wrong_bytes = 0
        for view in message.views():
            piece = np.frombuffer(view, np.uint8)
            wrong_bytes += int(np.count_nonzero(piece != expected[number % PATTERNS][at : at + len(piece)]))
            at += len(piece)
        totals["messages"] += 1
        totals["bytes"] += at
        totals["wrong_bytes"] += wrong_bytes
        totals["wrong_messages"] += wrong_bytes > 0
        return True

    async def serve(peer: Peer) -> None:
        is_sender = False
        while True:
            try:
                with await peer.recv() as message:
                    is_of_transfer = check(message)
            except PeerError:
                return
            totals["wrong_messages"] += is_sender and not is_of_transfer  # another peer's, in the name of the sender
            is_sender |= is_of_transfer

    async with await Endpoint.listen("127.0.0.1", port=0, config=config) as endpoint:
        _report_totals(lambda: {**totals, "dropped": endpoint.dropped_packets})
        emit("listening", port=endpoint.address[1])
        serving: set[asyncio.Task[None]] = set()
        while True:
            task = asyncio.ensure_future(serve(await endpoint.accept()))
            serving.add(task)
            task.add_done_callback(serving.discard)


async def send(host: str, *, port: int, config: EndpointConfig) -> int:
    """Send endlessly, with several messages in flight."""
    totals = {"bytes": 0, "failed": 0}
    with Region(PATTERNS * MESSAGE_BYTES, name="hostile-source") as region:
        for number in range(PATTERNS):
            region.array[number * MESSAGE_BYTES :][:MESSAGE_BYTES] = pattern(number)
        async with await Endpoint.open(towards=host, config=config) as endpoint:
            peer = await endpoint.connect(host, port=port)
            _report_totals(lambda: dict(totals))
            emit("sending")

            async def keep_sending(first: int) -> None:
                number = first
                while True:
                    offset = number % PATTERNS * MESSAGE_BYTES
                    status = await peer.post_send(
                        region, offset=offset, length=MESSAGE_BYTES, immediate=TRANSFER_MARK | number & 0xFFFFFF
                    )
                    totals["bytes"] += MESSAGE_BYTES * (status is Status.OK)
                    totals["failed"] += status is not Status.OK
                    number += IN_FLIGHT

            await asyncio.gather(*(keep_sending(number) for number in range(IN_FLIGHT)))
    return 0


def _report_totals(totals: Callable[[], dict[str, Any]]) -> None:
    """Reply to each line on stdin with the totals."""

    def on_line() -> None:
        if sys.stdin.readline():
            emit("total", **totals())
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), on_line)


def main() -> None:
    """Run one end."""
    security, role, *arguments = sys.argv[1:]
    config = EndpointConfig(security=Plain() if security == "plain" else Keys())
    if role == "receive":
        sys.exit(run(receive(config)))
    sys.exit(run(send(arguments[0], port=int(arguments[1]), config=config)))


if __name__ == "__main__":
    main()

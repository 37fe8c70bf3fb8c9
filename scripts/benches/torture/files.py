"""File transfers instead of messages: under any fault both ends must end and agree on the outcome, and the files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

import numpy as np

from scripts.benches.torture.journal import Journal, entries
from scripts.benches.torture.layout import journal_name
from scripts.benches.torture.local import GRACE_S, Orders, RunningTime, config
from scripts.benches.torture.pattern import check, fill
from scripts.benches.torture.plans import FilesPlan, TortureScenario
from scripts.benches.torture.result import TortureResult
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.file_transfer.directory import Directory
from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import Offer
from srd.file_transfer.receiving import OFFER_WITHIN_S, FileReceiver
from srd.file_transfer.sending import FileSender, SentFile
from srd.file_transfer.sessions import TransferSessions
from srd.file_transfer.watcher import ReceivedFile, Watcher

FILES: Final = 100
"""Owner of the files in the pattern: file i is message i."""
TRANSFER_S: Final = 10.0
"""Maximum time of a file, in addition to the timeout of a request."""


def received_directory(directory: Path) -> Path:
    return directory / "received"


def _plan(scenario: TortureScenario) -> FilesPlan:
    assert scenario.files is not None  # noqa: S101 - for mypy
    return scenario.files


async def send_files(
    scenario: TortureScenario, *, directory: Path, journal: Journal, orders: Orders, host: str
) -> None:
    """Send each file over a peer of its own."""
    running = RunningTime(journal.note)
    for number, size in enumerate(_plan(scenario).sizes):
        path = directory / f"file{number}"
        data = np.zeros(size, np.uint8)
        fill(data, scenario.seed, owner=FILES, message=number)
        path.write_bytes(data.tobytes())
        await _send(scenario, number, path, journal=journal, orders=orders, host=host, running=running)
    running.stop()


async def _send(
    scenario: TortureScenario,
    number: int,
    path: Path,
    *,
    journal: Journal,
    orders: Orders,
    host: str,
    running: RunningTime,
) -> None:
    plan, endpoint_plan = _plan(scenario), scenario.senders[0].endpoint
    endpoint = await Endpoint.open(towards=host, config=config(endpoint_plan))
    try:
        peer = await endpoint.connect(host, port=int((await orders.receiver())["port"]))
    except PeerError as error:  # timed out, or refused
        journal.note("unconnected", str(error))
        await endpoint.close()
        return
    sender = FileSender(peer, mapped=plan.mapped)
    size = plan.sizes[number]
    journal.note("file", number, size)
    sending = asyncio.ensure_future(sender.send(path))
    if plan.cancel_after_s is not None and number == 0:
        asyncio.get_running_loop().call_later(plan.cancel_after_s, sending.cancel)
    bound_s = endpoint_plan.request_timeout_s + TRANSFER_S
    outcome = await _outcome(running.bounded(sending, bound_s=bound_s, called=f"FileSender.send of {size} bytes"))
    journal.note("file_end", number, outcome)
    await running.bounded(endpoint.close(), bound_s=bound_s, called="Endpoint.close after a transfer")
    sender.close()


async def _outcome(sending: Awaitable[SentFile | None]) -> str:
    """Return the outcome of a transfer; raise unexpected exceptions."""
    try:
        return "open" if await sending is None else "ok"
    except asyncio.CancelledError:
        return "cancelled"
    except (TransferError, PeerError) as error:
        return f"failed: {error}"


async def receive_files(
    scenario: TortureScenario, *, directory: Path, journal: Journal, orders: Orders, host: str
) -> None:
    """Receive files from every peer, until the controller orders the end."""
    running = RunningTime(journal.note)
    plan = scenario.receiver.endpoint
    received_directory(directory).mkdir()
    endpoint = await Endpoint.listen(host, port=0, config=config(plan))
    journal.note("listening", {"incarnation": 0, "port": endpoint.address[1], "keys": {}, "source": []})
    sessions = TransferSessions(Directory(received_directory(directory), overwrite=True))
    tasks: list[asyncio.Future[None]] = []

    async def accept() -> None:
        while True:
            receiver = FileReceiver(await endpoint.accept(), sessions=sessions, watcher=_Noted(journal))
            tasks.append(asyncio.ensure_future(_receive(receiver, journal)))

    accepting = asyncio.ensure_future(accept())
    await orders.finish.wait()
    # An attacker that was let in is no sender of a file, and may be waited for.
    bound_s = max(plan.request_timeout_s, OFFER_WITHIN_S) + GRACE_S
    await running.bounded(asyncio.gather(*tasks), bound_s=bound_s, called="FileReceiver.receive of an ended sender")
    accepting.cancel()
    await running.bounded(endpoint.close(), bound_s=bound_s, called="the receiver's Endpoint.close")
    await asyncio.wait([accepting, *tasks], timeout=GRACE_S)
    if not accepting.cancelled():
        accepting.result()
    tasks.clear()
    sessions.close()
    running.stop()


class _Noted(Watcher):
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def on_received(self, received: ReceivedFile) -> None:
        self._journal.note("file_received", received.name, received.size)

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:  # noqa: ARG002 - Watcher's
        self._journal.note("file_failed", str(error))

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:  # noqa: ARG002 - as above
        self._journal.note("file_failed", str(error))


async def _receive(receiver: FileReceiver, journal: Journal) -> None:
    try:
        await receiver.receive()
    except (TransferError, PeerError) as error:
        journal.note("file_failed", str(error))


def check_files(scenario: TortureScenario, directory: Path, result: TortureResult) -> None:
    """Compare what was received with what was sent, and with what both ends recorded."""
    sent: dict[int, str] = {}
    sizes: dict[int, int] = {}
    for worker in (0, 1):
        for entry in entries(directory / journal_name(worker, incarnation=0)):
            if entry.kind == "file":
                sizes[entry.values[0]] = entry.values[1]
                result.requests += 1
            elif entry.kind == "file_end":
                sent[entry.values[0]] = entry.values[1]
            elif entry.kind == "hang":
                result.hangs.append(str(entry.values[0]))
    for number, size in sizes.items():
        path = received_directory(directory) / f"file{number}"
        outcome = sent.get(number, "open")
        if outcome == "ok" and not path.exists():
            result.disagreements.append(f"file {number} of {size} bytes was sent, but does not exist")
        if path.exists():
            result.posted_bytes += path.stat().st_size
            found = np.fromfile(path, np.uint8)
            wrong = check(found, scenario.seed, owner=FILES, message=number)
            if wrong or len(found) != size:
                result.wrong.append(f"file {number} of {size} bytes has {len(found)}: {wrong or 'none of them wrong'}")

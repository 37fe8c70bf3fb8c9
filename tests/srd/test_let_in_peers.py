"""A peer that was let in, and lies about whose packets its are, and in every field: the others' bytes are right.

It is a rogue's (`scripts.harness.rogue`), whose packets are authentic whatever they say. What it may know of others, it
is told here: contexts, PSNs, message numbers and keys of registrations are readable in the headers of their data.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from devmem.region import Region
from devmem.registry import Access, Registration
from scripts.harness.liar import Fields, Liar, Lie, Overheard
from scripts.harness.rogue import RoguePeer, open_rogue
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.peer import Peer
from srd.proto.wire.control import Close, Hello, Probe
from srd.proto.wire.data import HEADER_BYTES, Opcode
from srd.proto.wire.protected import TAG_BYTES
from srd.proto.wire.status import Status
from srd.secure.config import Keys, Plain
from srd.secure.noise import public_bytes
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, carry, content, memory, receive, send

HOST = "127.0.0.1"
UDP_SEGMENT = 103
LENGTH = 200
RANGE_BYTES = 1 << 16
LIES = 400


def keys(directory: Path, name: str, **more: Any) -> Keys:
    private = X25519PrivateKey.generate()
    return Keys(private, directory / f"known-of-{name}", **more)


@dataclass
class Stage:
    """A listener; an honest peer of it, which has memory there for itself; and whoever else it lets in."""

    server: Endpoint
    client: Endpoint
    honest: Peer
    honest_there: Peer
    region: Region
    registration: Registration
    liars_security: Keys | Plain
    sockets: list[socket.socket] = field(default_factory=list)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def target(self) -> tuple[str, int]:
        return HOST, self.server.address[1]

    def overheard(self) -> list[Overheard]:
        """What is readable in the honest peer's data."""
        core = self.honest._core
        sender = core.sender
        psn, message, key = sender._inflight.next_psn, sender.queue._next_message, self.registration.remote_key
        return [Overheard(core.remote_context, psn, message & 0xFFFFFFFF, key, core.own_context)]

    async def let_in(self, *, rng: Random) -> tuple[socket.socket, RoguePeer, Peer]:
        """Open a peer for somebody who lies; return its socket, its end, and the listener's."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sockets.append(sock)
        sock.bind((HOST, 0))
        hello = Hello(rng.getrandbits(64), 1 << 20, 1 << 10, 1 << 20, 4096, 1472)
        async with self.opening:  # so that what is accepted is this one
            rogue = await asyncio.to_thread(
                open_rogue, sock, self.target, hello, security=self.liars_security, bound_s=PATIENCE_S
            )
            sock.settimeout(0)
            sock.sendto(rogue.seal(Probe(rogue.context, rogue.own_context, 0, 0, 0).encode()), self.target)
            return sock, rogue, await self.server.accept()

    def send(self, sock: socket.socket, data: bytes, *, segment_bytes: int = 0) -> None:
        control = [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", segment_bytes))] if segment_bytes else []
        with suppress(OSError):  # full: it is lost
            sock.sendmsg([data], control, 0, self.target)


@asynccontextmanager
async def stage(directory: Path, *, secure: bool = True) -> AsyncIterator[Stage]:
    honest_keys, liars_keys = keys(directory, "honest"), keys(directory, "liar")
    inside = frozenset(public_bytes(each.private_key) for each in (honest_keys, liars_keys))  # type: ignore[arg-type]
    config = replace(SMALL, security=keys(directory, "server", authorized=inside) if secure else Plain())
    opener: EndpointConfig = replace(SMALL, security=honest_keys if secure else Plain())
    async with (
        asyncio.timeout(PATIENCE_S * 2),
        await Endpoint.listen(HOST, port=0, config=config) as server,
        await Endpoint.open(towards=HOST, config=opener) as one,
    ):
        honest, there = await one.connect(HOST, port=server.address[1]), await server.accept()
        with Region(RANGE_BYTES) as region:
            access = Access.REMOTE_WRITE | Access.LOCAL_WRITE | Access.REMOTE_READ
            registration = server.register(region, offset=0, length=RANGE_BYTES, access=access, peers=[there])
            at = Stage(server, one, honest, there, region, registration, liars_keys if secure else Plain())
            try:
                yield at
            finally:
                for sock in at.sockets:
                    sock.close()
                server.deregister(registration)


async def settled(at: Stage, sock: socket.socket, rogue: RoguePeer) -> None:
    """Wait until the listener has processed what was sent over this socket before."""
    with suppress(BlockingIOError):
        while True:
            sock.recv(1 << 16)
    at.send(sock, rogue.seal(Probe(rogue.context, rogue.own_context, 0, 0, 0).encode()))
    await asyncio.get_running_loop().sock_recv(sock, 1 << 16)


# -- one lie at a time ------------------------------------------------------------------------------------------------


def train(rogue: RoguePeer, lies: list[Fields], *, first_psn: int) -> tuple[bytes, int]:
    """A train of the rogue's: one honest message of its own, then what it says is another's."""
    fields = [Fields(rogue.context, psn=first_psn, message=first_psn, length=LENGTH), *lies]
    packets = []
    for index, each in enumerate(fields):
        each.path_sequence = rogue.path_sequence + index
        packets.append(each.encode() + bytes([0x41 + index]) * LENGTH)
    return rogue.seal_train(packets, path=0), HEADER_BYTES + LENGTH + TAG_BYTES


@pytest.mark.parametrize("count", [1, 30], ids=["few", "many"])
async def test_train__its_packets_are_its_sealers_and_nobody_elses(count: int, tmp_path: Path) -> None:
    """Not delivered as the other's, nor acknowledged in its place, nor written through what is registered for it."""
    async with stage(tmp_path) as at:
        sock, rogue, _ = await at.let_in(rng=Random(1))
        assert await send(at.honest, b"first") == Status.OK
        assert await receive(at.honest_there) == b"first"
        for number, flags in enumerate((Opcode.SEND, Opcode.WRITE, Opcode.READ)):
            (known,) = at.overheard()
            lies = [
                Fields(
                    known.context,
                    flags=flags,
                    psn=known.psn + index,
                    message=known.message + index,
                    length=LENGTH,
                    key=known.key if flags else 0,
                )
                for index in range(count)
            ]
            data, segment_bytes = train(rogue, lies, first_psn=number)
            at.send(sock, data, segment_bytes=segment_bytes)
            await settled(at, sock, rogue)
            genuine = content(LENGTH, seed=number)
            assert await send(at.honest, genuine) == Status.OK
            assert await receive(at.honest_there) == genuine
        assert not any(bytes_of(at.region))
        assert at.honest_there.stats().rx_duplicates == 0, "nothing was acknowledged for it"


async def test_control__that_names_another_peer_changes_nothing_of_it(tmp_path: Path) -> None:
    """Sealed with the liar's keys, and with its context outside: the one inside is another's."""
    async with stage(tmp_path) as at:
        sock, rogue, there = await at.let_in(rng=Random(1))
        (known,) = at.overheard()
        for packet in (
            Close(known.context, known.remote_context),
            Probe(known.context, known.remote_context, 0, 5, 0),
            Close(rogue.context, known.remote_context),
        ):
            at.send(sock, rogue.seal(packet.encode()))
        await settled(at, sock, rogue)
        assert not at.honest_there.ended
        assert not there.ended
        assert await send(at.honest, b"on") == Status.OK
        assert await receive(at.honest_there) == b"on"


# -- all lies, by seed ------------------------------------------------------------------------------------------------


@contextmanager
def no_internal_error() -> Iterator[None]:
    """Fail if an exception reached the loop: a peer may make this end drop its packets, and not more."""
    caught: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: caught.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert not caught


async def lie_on(at: Stage, *, rng: Random, done: asyncio.Event) -> dict[str, int]:
    """Lie, with one peer after the other, until `done` and for `LIES` packets and trains; return what of each kind."""
    said: dict[str, int] = {}
    while sum(said.values()) < LIES or not done.is_set():
        sock, rogue, there = await at.let_in(rng=rng)
        draining = asyncio.ensure_future(drain(there))
        liar = Liar(rogue, rng=rng, overheard=at.overheard)
        for _ in range(rng.choice((5, 50, 200))):
            lie: Lie = liar.next()
            said[lie.kind] = said.get(lie.kind, 0) + 1
            at.send(sock, lie.data, segment_bytes=lie.segment_bytes)
            await asyncio.sleep(0)
            has_ended = there.ended
            with suppress(BlockingIOError):
                while not has_ended:
                    has_ended = liar.hear_untrusted(sock.recv(1 << 16))
            if has_ended:
                break
        while not there.ended:
            at.send(sock, rogue.seal(Close(rogue.context, rogue.own_context).encode()))
            await asyncio.sleep(0)
        sock.close()
        await draining
    return said


async def drain(there: Peer) -> None:
    """Receive what a liar sends, whatever it is."""
    with suppress(PeerError):
        while True:
            (await there.recv()).release()


async def exchange(at: Stage, *, number: int) -> None:
    """A message each way, a write and a read, of the honest peer: every byte is right."""
    for sender, receiver, seed in (
        (at.honest, at.honest_there, 2 * number),
        (at.honest_there, at.honest, 2 * number + 1),
    ):
        payload = content(1 + seed * 977 % 60_000, seed=seed)
        await carry(sender, receiver, payload, immediate=number)
    payload, key = content(RANGE_BYTES, seed=number), at.registration.remote_key
    with memory(payload) as source, Region(RANGE_BYTES) as target:
        writing = at.honest.post_write(source, offset=0, length=RANGE_BYTES, key=key, target_offset=0)
        assert await writing == Status.OK
        assert bytes_of(at.region) == payload
        into = at.client.register(target, offset=0, length=RANGE_BYTES, access=Access.LOCAL_WRITE)
        reading = at.honest.post_read(into, offset=0, length=RANGE_BYTES, key=key, source_offset=0)
        assert await reading == Status.OK
        at.client.deregister(into)
        assert bytes_of(target) == payload


def bytes_of(region: Region) -> bytes:
    with region.view(0, length=RANGE_BYTES) as view:
        return bytes(view)


def assert_only_open_peers(at: Stage) -> None:
    """Nothing is left of the liars in the core's tables."""
    core = at.server._engine.core
    assert list(core._peers.values()) == [at.honest_there._core]
    assert set(core._by_context.values()) == {at.honest_there._core}
    assert set(core.protections) <= set(core._by_context)
    assert {peer for each in core._by_reset.values() for peer in each} <= {at.honest_there._core}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("secure", [True, False], ids=["keys", "plain"])
@pytest.mark.parametrize("seed", range(3))
async def test_liar__whatever_it_says_an_honest_peers_bytes_are_right(
    seed: int, tmp_path: Path, *, secure: bool
) -> None:
    """Two of them beside it. In plain text a liar can be anybody whose contexts it knows: there it knows none."""
    async with stage(tmp_path, secure=secure) as at:
        with no_internal_error():
            done, rng = asyncio.Event(), Random(seed)
            await exchange(at, number=0)
            free_bytes, before_bytes = at.server.stats().free_bytes, resident_bytes()
            lying = [asyncio.ensure_future(lie_on(at, rng=Random(rng.random()), done=done)) for _ in range(2)]
            for number in range(1, 12):
                await exchange(at, number=number)
            done.set()
            said = await asyncio.gather(*lying)
        for number in range(12, 15):
            await exchange(at, number=number)
        kinds = {"truth", "which", "message", "ack", "with_ack", "control", "keys"} | ({"whose"} if secure else set())
        assert {kind for each in said for kind in each} == kinds
        assert_only_open_peers(at)
        assert at.server.stats().free_bytes >= free_bytes - 4 * SMALL.chunk_bytes, "pinned memory"
        assert resident_bytes() - before_bytes < 24 << 20
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0):
                await at.honest_there.recv()  # nothing else was delivered as the honest peer's

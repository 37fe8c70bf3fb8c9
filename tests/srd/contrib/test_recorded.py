"""The Wireshark dissector on what endpoints really sent over a lossy network: every packet, every field."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from devmem.registry import Access
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.proto.wire.control import decode_untrusted
from srd.proto.wire.data import PacketType
from srd.proto.wire.status import Status
from srd.secure.key_log import KeyLog
from tests.patience import PATIENCE_S
from tests.srd.contrib.test_dissector_fields import compare
from tests.srd.contrib.tshark import FIRST, Fields, Frame, dissect, write
from tests.srd.loopback import PLAIN, SMALL, carry, content, memory
from tests.srd.lossy import HOST, Address, Relay, relay
from tests.srd.proto.wire.test_fields import check
from tests.srd.proto.wire.walk import walk

pytestmark = pytest.mark.long

SEED = 22
SIZE = 200_000


class Recorder(Relay):
    """Records at its entrance: also what it loses."""

    frames: list[Frame]

    def _from_client(self, data: bytes, client: Address) -> None:
        self.record(data, client, (HOST, self.port))
        super()._from_client(data, client)

    def _from_server(self, client: Address, data: bytes, _: Address) -> None:
        self.record(data, (HOST, self.port), client)
        super()._from_server(client, data, _)

    def record(self, data: bytes, source: Address, destination: Address) -> None:
        """Keep a datagram with the time."""
        self.frames.append(Frame(data, source, destination, at_us=time.monotonic_ns() // 1000))


async def recorded(config: EndpointConfig) -> list[Frame]:
    """Send messages of many sizes both ways, write and read, over a network with loss; return all that was sent."""
    Recorder.frames = []
    async with (
        asyncio.timeout(PATIENCE_S * 2),
        await Endpoint.listen(HOST, port=0, config=config) as two,
        relay(two.address[1], seed=SEED, loss=0.05, kind=Recorder) as network,
        await Endpoint.open(towards=HOST, config=config) as one,
    ):
        here = await one.connect(HOST, port=network.port)
        there = await two.accept()
        for number, size in enumerate((0, 5, 9000, 300_000)):
            payload = content(size, seed=number)
            await carry(here, there, payload, immediate=number)
            await carry(there, here, payload)
        with memory(content(SIZE, seed=9)) as source, memory(bytes(SIZE)) as target:
            given = two.register(target, offset=0, length=SIZE, access=Access(7), peers=None)
            own = one.register(source, offset=0, length=SIZE, access=Access.LOCAL_WRITE, peers=None)
            assert (
                await here.post_write(source, offset=0, length=SIZE, key=given.remote_key, target_offset=0) == Status.OK
            )
            assert await here.post_read(own, offset=0, length=SIZE, key=given.remote_key, source_offset=0) == Status.OK
            with target.view(0, length=SIZE) as landed:
                assert landed == content(SIZE, seed=9)
            one.deregister(own)
            two.deregister(given)
        await here.close()
    return Recorder.frames


def again(frames: list[Frame]) -> list[tuple[int | None, int | None]]:
    """Return, for each frame, which one had its data before, and which one was the same datagram; counted from 1."""
    contents: dict[bytes, int] = {}
    datagrams: dict[bytes, int] = {}
    found: list[tuple[int | None, int | None]] = []
    for number, frame in enumerate(frames, 1):
        packet, sent_before = frame.payload, None
        is_numbered = packet[1] in {PacketType.DATA, PacketType.PROBE, PacketType.PROTECTED}
        one = packet[3:16] + bytes([packet[1] == PacketType.PROTECTED])
        same = datagrams.get(one) if is_numbered else None
        if same is None and packet[1] == PacketType.DATA:
            sent_before = contents.get(packet[8:24])
            contents[packet[8:24]] = number
        if is_numbered and same is None:
            datagrams[one] = number
        found.append((sent_before, same))
    return found


def check_order(frames: list[Frame], shown: list[list[Fields]]) -> None:
    """Every packet is SRD, and of the same conversation; data that was sent before is marked, and nothing else is."""
    assert len(frames) == len(shown)
    for frame, layers, (sent_before, same) in zip(frames, shown, again(frames), strict=True):
        (packet,) = layers
        assert "srd.malformed" not in packet
        assert packet["srd.stream"] == ["0"], packet
        if frame.payload[1] == PacketType.DATA:
            assert packet.get("srd.analysis.retransmission_of") == (None if sent_before is None else [str(sent_before)])
        assert packet.get("srd.analysis.duplicate_of") == (None if same is None else [str(same)])


async def test_plain_text(tmp_path: Path) -> None:
    frames = await recorded(PLAIN)
    shown = dissect(write(tmp_path / "plain.pcapng", frames), *FIRST)
    check_order(frames, shown)
    kinds = set[str]()
    for frame, (packet,) in zip(frames, shown, strict=True):
        prefix, body = walk(frame.payload)
        kind = PacketType(frame.payload[1]).name
        compare(packet, "srd", prefix)
        compare(packet, f"srd.{kind.lower()}", body)
        if kind != "DATA":
            check(decode_untrusted(frame.payload), body)
        kinds.add(f"DATA {packet['srd.data.opcode'][0]}" if kind == "DATA" else kind)
    assert kinds >= {"HELLO", "RETRY", "ACCEPT", "ACK", "CLOSE", "DATA 0", "DATA 1", "DATA 2", "DATA 3"}
    assert any("srd.analysis.retransmission" in packet for (packet,) in shown), "5 % were lost"
    contexts = {packet["srd.context"][0] for (packet,) in shown} - {f"0x{0:016x}"}
    assert {packet["srd.peer_context"][0] for (packet,) in shown[10:]} == contexts


async def test_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the clear has the values that the packets have; the rest is shown as what it is."""
    monkeypatch.setenv("SRDKEYLOGFILE", str(tmp_path / "keys"))
    frames = await recorded(SMALL)
    shown = dissect(write(tmp_path / "encrypted.pcapng", frames), *FIRST)
    check_order(frames, shown)
    log, opened = KeyLog.read(tmp_path / "keys"), 0
    for frame, (packet,) in zip(frames, shown, strict=True):
        kind = PacketType(frame.payload[1])
        prefix, body = walk(frame.payload)
        compare(packet, "srd", prefix)
        compare(packet, f"srd.{kind.name.lower()}", body)
        if kind not in {PacketType.DATA, PacketType.PROTECTED}:
            continue
        assert packet["srd.tag"] == [frame.payload[-16:].hex(":")]
        plain = log.open_untrusted(frame.payload)
        opened += 1
        if kind == PacketType.DATA:
            ciphertext = packet.get("srd.data.ciphertext", [""])[0].replace(":", "")
            assert len(ciphertext) // 2 == len(plain) - 56
    assert opened > 50
    inferred = {packet["srd.peer_context"][0] for (packet,) in shown if "srd.peer_context" in packet}
    assert inferred == {packet["srd.context"][0] for (packet,) in shown} - {f"0x{0:016x}"}

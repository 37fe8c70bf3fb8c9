"""Endpoints with encryption on real sockets: who each end is, who is refused, what stays secret."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devmem.region import Region
from devmem.registry import Access
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError, UsageError
from srd.proto.base.security import SecurityMode
from srd.proto.wire.data import HEADER_BYTES, VERSION, PacketType
from srd.proto.wire.status import Status
from srd.secure.certificates import Authorities
from srd.secure.config import Cert, Identity, Keys, Plain, SecurityConfig
from srd.secure.key_log import KeyLog
from srd.secure.keys import fingerprint
from srd.secure.noise import public_bytes
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, carry, content, endpoints, memory, pair
from tests.srd.lossy import tap
from tests.srd.secure import ends as ends_module
from tests.srd.secure.ends import authority, certificate, static

SEED = 71
MIB = 1 << 20


def secured(security: SecurityConfig) -> EndpointConfig:
    return replace(SMALL, security=security)


def keys(name: str, directory: Path, **options: Any) -> Keys:
    return Keys(static(name), known_hosts=directory / f"known_hosts_of_{name}", **options)


def public(name: str) -> bytes:
    return public_bytes(static(name))


async def exchange(one: SecurityConfig, two: SecurityConfig, *, print_of_two: str | None = None) -> list[Identity]:
    """Send a message each way, byte by byte the right one; return who the ends are to each other."""
    payload = content(MIB, seed=SEED)
    async with endpoints(secured(two), opener=secured(one)) as (client, server):
        here = await client.connect("127.0.0.1", port=server.address[1], fingerprint=print_of_two)
        there = await server.accept()
        for sender, receiver in ((here, there), (there, here)):
            await carry(sender, receiver, payload, immediate=7)
        return [here.identity, there.identity]


async def refused(one: SecurityConfig, two: SecurityConfig, *, print_of_two: str | None = None) -> PeerError:
    """Return the error of a connection that must not come about; the other end must not see a peer."""
    async with endpoints(secured(two), opener=secured(one)) as (client, server):
        with pytest.raises(PeerError) as caught:
            await client.connect("127.0.0.1", port=server.address[1], fingerprint=print_of_two)
        assert not server._peers
        return caught.value


# -- who each end is -------------------------------------------------------------------------------------------------


async def test_keys__are_each_others_identity(tmp_path: Path) -> None:
    here, there = await exchange(keys("a", tmp_path), keys("b", tmp_path))
    assert here == Identity(SecurityMode.KEYS, public("b"))
    assert there == Identity(SecurityMode.KEYS, public("a"))
    assert here.fingerprint == fingerprint(public("b"))


async def test_default__is_by_keys_of_this_user() -> None:
    here, there = await exchange(EndpointConfig().security, EndpointConfig().security)
    assert here == there
    assert here.mode is SecurityMode.KEYS
    assert here.fingerprint


def cert(name: str, *, issuer: str = "authority", names: tuple[str, ...] = ("127.0.0.1",)) -> Cert:
    """Valid today."""
    days = (datetime.now(UTC) - ends_module.NOW).days
    der = certificate(name, names=names, issuer=issuer, from_days=days - 1, to_days=days + 2)
    return Cert(static(name), der, Authorities((authority(from_days=days - 1, to_days=days + 2),)))


async def test_cert__names_are_the_identity() -> None:
    here, there = await exchange(cert("a", names=("worker-1",)), cert("b"))
    assert here == Identity(SecurityMode.CERT, public("b"), ("127.0.0.1",))
    assert there == Identity(SecurityMode.CERT, public("a"), ("worker-1",))


# -- who is refused --------------------------------------------------------------------------------------------------


async def test_fingerprint__of_another_key_bad_flow(tmp_path: Path) -> None:
    one, two = keys("a", tmp_path), keys("b", tmp_path)
    await exchange(one, two, print_of_two=fingerprint(public("b")))
    assert not (tmp_path / "known_hosts_of_a").exists(), "who is known by a fingerprint is not recorded"
    assert "has another key than" in str(await refused(one, two, print_of_two=fingerprint(public("c"))))


async def test_known_hosts__trust_on_first_use(tmp_path: Path) -> None:
    """A host has the same key at the next connection, or is refused; the known hosts are not touched then."""
    known = tmp_path / "known_hosts_of_a"
    async with asyncio.timeout(PATIENCE_S):
        async with await Endpoint.listen("127.0.0.1", port=0, config=secured(keys("b", tmp_path))) as server:
            port = server.address[1]
            async with await Endpoint.open(towards="127.0.0.1", config=secured(keys("a", tmp_path))) as client:
                first = await client.connect("127.0.0.1", port=port)
                again = await client.connect("127.0.0.1", port=port)
                assert [first.is_first_contact, again.is_first_contact] == [True, False]
        text = known.read_text()
        assert text.startswith(f"127.0.0.1:{port} srd-x25519 ")
        async with (
            await Endpoint.listen("127.0.0.1", port=port, config=secured(keys("c", tmp_path))),
            await Endpoint.open(towards="127.0.0.1", config=secured(keys("a", tmp_path))) as client,
        ):
            with pytest.raises(PeerError, match="has another key than before"):
                await client.connect("127.0.0.1", port=port)
        assert known.read_text() == text


async def test_known_hosts__that_cannot_be_written_bad_flow(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = Keys(static("a"), known_hosts=tmp_path / "file" / "known_hosts")
    async with endpoints(secured(keys("b", tmp_path)), opener=secured(config)) as (client, server):
        with pytest.raises(SrdError, match="name another file"):
            await client.connect("127.0.0.1", port=server.address[1])


async def test_accept__authorize_by_identity(tmp_path: Path) -> None:
    """Who is not authorised is closed; the next one is returned."""
    async with (
        asyncio.timeout(PATIENCE_S),
        await Endpoint.listen("127.0.0.1", port=0, config=secured(keys("b", tmp_path))) as server,
        await Endpoint.open(towards="127.0.0.1", config=secured(keys("c", tmp_path))) as stranger,
        await Endpoint.open(towards="127.0.0.1", config=secured(keys("a", tmp_path))) as friend,
    ):
        accepting = asyncio.ensure_future(server.accept(authorize=lambda who: who.public_key == public("a")))
        refused_peer = await stranger.connect("127.0.0.1", port=server.address[1])
        await refused_peer.wait_ended()
        await friend.connect("127.0.0.1", port=server.address[1])
        assert (await accepting).identity.public_key == public("a")


async def test_accept__authorize_that_raises(tmp_path: Path) -> None:
    def broken(who: Identity) -> bool:
        raise ValueError(who.mode.name)

    async with endpoints(secured(keys("b", tmp_path)), opener=secured(keys("a", tmp_path))) as (client, server):
        accepting = asyncio.ensure_future(server.accept(authorize=broken))
        peer = await client.connect("127.0.0.1", port=server.address[1])
        with pytest.raises(ValueError, match="KEYS"):
            await accepting
        await peer.wait_ended()


async def test_known_hosts__damaged_while_another_peer_is_open(tmp_path: Path) -> None:
    """The error is that of the connection, and of no other peer."""
    async with (
        asyncio.timeout(PATIENCE_S),
        await Endpoint.listen("127.0.0.1", port=0, config=secured(keys("b", tmp_path))) as server,
        await Endpoint.listen("127.0.0.1", port=0, config=secured(keys("c", tmp_path))) as other,
        await Endpoint.open(towards="127.0.0.1", config=secured(keys("a", tmp_path))) as client,
    ):
        here = await client.connect("127.0.0.1", port=server.address[1])
        there = await server.accept()
        with (tmp_path / "known_hosts_of_a").open("a") as file:
            file.write("damaged\n")
        with pytest.raises(PeerError, match=r"known_hosts_of_a, line 2: is no public key"):
            await client.connect("127.0.0.1", port=other.address[1])
        await carry(here, there, b"still here")


# -- what is on the wire ---------------------------------------------------------------------------------------------


async def relayed(one: SecurityConfig, two: SecurityConfig, payload: bytes) -> list[bytes]:
    """Send a message over a relay on loopback; return all datagrams that it saw."""
    config = replace(secured(one), datagram_bytes=1200)
    config = replace(config, protocol=replace(config.protocol, paths=1))
    async with endpoints(secured(two), opener=config) as (client, server), tap(server.address[1]) as network:
        here = await client.connect("127.0.0.1", port=network.port)
        there = await server.accept()
        await carry(here, there, payload, immediate=0xABCDEF01)
        await here.close()
        return [data for data, _ in network.seen]


async def test_wire__nothing_of_the_application_is_readable(tmp_path: Path) -> None:
    words = b"attack at dawn, "
    payload = words * 500
    plain = await relayed(Plain(), Plain(), payload)
    assert any(words in data for data in plain), "the relay sees what is sent"
    assert any(b"\xab\xcd\xef\x01" in data for data in plain)
    seen = await relayed(keys("a", tmp_path), keys("b", tmp_path), payload)
    assert len(seen) > 10
    for data in seen:
        assert words not in data
        assert b"\xab\xcd\xef\x01" not in data
        assert public("a") not in data


async def test_key_log__decrypts_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SSLKEYLOGFILE: context, and the secret of the packets that carry it."""
    log = tmp_path / "keys.log"
    monkeypatch.setenv("SRDKEYLOGFILE", str(log))
    payload = content(800, seed=SEED)
    seen = await relayed(keys("a", tmp_path), keys("b", tmp_path), payload)
    assert log.stat().st_mode & 0o777 == 0o600
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {line[0] for line in lines} == {"SRD_SECRET"}
    assert len(lines) == 4, "both ends log both directions"
    key_log = KeyLog.read(log)
    opened = [key_log.open_untrusted(data) for data in seen if data[1] in (PacketType.DATA, PacketType.PROTECTED)]
    (message,) = [packet for packet in opened if packet[1] == PacketType.DATA]
    assert message[HEADER_BYTES:] == payload
    assert int.from_bytes(message[36:40], "big") == 0xABCDEF01, "the immediate"
    assert {PacketType.ACK, PacketType.PROBE} <= {packet[1] for packet in opened}


async def test_key_log__that_cannot_be_written_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRDKEYLOGFILE", str(tmp_path / "gone" / "keys.log"))
    with pytest.raises(UsageError, match=r"SRDKEYLOGFILE=.*: cannot be written: No such file"):
        async with await Endpoint.open(towards="127.0.0.1", config=secured(keys("a", tmp_path))):
            pass


async def test_registered_memory__only_authentic_bytes_ever_reach_it(tmp_path: Path) -> None:
    """Forged packets of a write, one for each packet that is sent, under the true context, before and after it."""
    size = 200_000
    payload = content(size, seed=SEED)
    with Region(size) as target, memory(payload) as source:
        target.array[:] = 0xEE
        async with pair(config=secured(keys("b", tmp_path)), opener=secured(keys("a", tmp_path))) as ends:
            _, server, here, there = ends
            rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
            registration = server.register(target, offset=0, length=size, access=rights, peers=[there])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for number in range(200):
                    head = (
                        bytes([VERSION, PacketType.DATA, 2, 0])
                        + number.to_bytes(4, "big")
                        + there.context.to_bytes(8, "big")
                    )
                    rest = number.to_bytes(8, "big") + bytes(4) + bytes(4) + size.to_bytes(4, "big") + bytes(4)
                    rest += bytes(8) + registration.remote_key.to_bytes(8, "big")
                    sock.sendto(head + rest + bytes([0x55]) * 1000, server.address)
            status = await here.post_write(source, offset=0, length=size, key=registration.remote_key, target_offset=0)
            assert status is Status.OK
            assert target.array[:size].tobytes() == payload
            server.deregister(registration)

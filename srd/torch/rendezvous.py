"""How the ranks of a group find each other: addresses and a key in torch's store, then a peer for each pair.

The key is as secret as the store is; torch's own stores do not encrypt. It keeps others off the group's ports, and what
the ranks send out of the sight of whoever is on the way and did not see the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from srd import Endpoint, EndpointConfig, Peer, Plain, ProtocolConfig, Psk, SrdError
from srd.torch.group_error import GroupError
from srd.torch.mesh import Mesh
from srd.torch.transfers import RankLink

UNRESPONSIVE_AFTER_S: Final = 10.0
"""An interpreter may be held for seconds, by one long operation on integers or an import: the loop's thread cannot
answer meanwhile. A host that is gone is noticed after this time; a process that was killed after a second, as its host
answers that the port is closed. One that ends in order, also by an exception, closes its group."""
KEY_BYTES: Final = 32
RANK_BYTES: Final = 4


def own_host(environment: Mapping[str, str], *, rank: int) -> str:
    """Return the address that other ranks reach this process at; `rank`: its global one.

    SRD_HOST; else its place in RANK_HOSTS (which `srd-lab run` sets); else the address of the route to MASTER_ADDR;
    else loopback, as with a store in a file. Raises GroupError.
    """
    if host := environment.get("SRD_HOST"):
        return host
    hosts = [each.strip() for each in environment.get("RANK_HOSTS", "").split(",") if each.strip()]
    if rank < len(hosts):
        return hosts[rank]
    if not (master := environment.get("MASTER_ADDR")):
        return "127.0.0.1"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise GroupError(f"MASTER_ADDR: {master} has no route ({error}); set SRD_HOST to this host's address") from None


def own_leaf(environment: Mapping[str, str]) -> str:
    """Return what this rank says of its place: SRD_LEAF, else RANK_LEAF (which `srd-lab run` sets); empty: unknown."""
    return environment.get("SRD_LEAF", environment.get("RANK_LEAF", ""))


def config_of(key: bytes) -> EndpointConfig:
    """Return the settings of a group's endpoint; an empty key: plain text."""
    return EndpointConfig(
        protocol=ProtocolConfig(unresponsive_after_s=UNRESPONSIVE_AFTER_S),
        security=Psk(key) if key else Plain(),
    )


class Rendezvous:
    """One group's entries in the store."""

    def __init__(self, store: Any, *, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size

    def key(self) -> bytes:
        """Return the key that rank 0 has made; empty if its SRD_PLAIN is 1."""
        if self._rank == 0:
            is_plain = os.environ.get("SRD_PLAIN") == "1"
            self._store.set("srd/key", b"-" if is_plain else os.urandom(KEY_BYTES).hex().encode())
        found = bytes(self._store.get("srd/key"))
        return b"" if found == b"-" else bytes.fromhex(found.decode())

    def publish(self, host: str, port: int, *, leaf: str) -> None:
        """Say where this rank listens."""
        self._store.set(f"srd/{self._rank}", json.dumps({"host": host, "port": port, "leaf": leaf}))

    def entries(self) -> list[dict[str, Any]]:
        """Return what all ranks have published; waits for them as long as the store does."""
        return [json.loads(self._store.get(f"srd/{rank}")) for rank in range(self._size)]


async def listen(host: str, *, key: bytes) -> Endpoint:
    """Open the group's endpoint. Raises GroupError."""
    try:
        return await Endpoint.listen(host, 0, config=config_of(key))
    except (SrdError, OSError) as error:
        raise GroupError(f"{error}; set SRD_HOST to this host's address") from error


def _rank_untrusted(message: bytes) -> int:
    """Return the rank that a peer says it is. Raises GroupError."""
    if len(message) != RANK_BYTES:
        raise GroupError(f"a peer says in {len(message)} bytes which rank it is, and no rank does")
    return int.from_bytes(message, "big")


async def join(endpoint: Endpoint, entries: list[dict[str, Any]], *, rank: int, timeout_s: float) -> Mesh:
    """Open a peer to each lower rank, accept one from each higher one; return the links. Raises GroupError."""
    hosts = [entry["host"] for entry in entries]
    mesh = Mesh(endpoint, rank=rank, hosts=hosts, leaves=[entry["leaf"] for entry in entries])
    missing = set(range(len(entries))) - {rank}

    async def opened(other: int) -> None:
        peer = await endpoint.connect(hosts[other], entries[other]["port"])
        await peer.send(rank.to_bytes(RANK_BYTES, "big"))
        link(other, peer)

    async def accepted() -> None:
        for _ in range(rank + 1, len(entries)):
            peer = await endpoint.accept()
            link(_rank_untrusted((await peer.recv()).data()), peer)

    def link(other: int, peer: Peer) -> None:
        if other not in missing:
            raise GroupError(f"{peer.address[0]}: says it is rank {other}, which is no other rank, or is here already")
        missing.discard(other)
        mesh.links[other] = RankLink(peer, rank=other, host=hosts[other], owner=mesh)

    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(accepted(), *(opened(other) for other in range(rank)))
    except TimeoutError:
        names = ", ".join(f"rank {other} at {hosts[other]}" for other in sorted(missing))
        raise GroupError(f"{names} did not come within {timeout_s:g} s") from None
    except SrdError as error:
        raise GroupError(f"rank {rank} at {hosts[rank]} cannot join: {error}") from error
    return mesh

"""Volumes on servers, over SRD: made, attached, looked at and scrubbed.

servers = [("10.0.0.1", 4420), ("10.0.0.2", 4420), ("10.0.0.3", 4420)]
await create(new_id, size_bytes=1 << 30, servers=servers, security=security)
async with attached("vol-1", volume=new_id, size_bytes=1 << 30, servers=servers, security=security) as device:
    await device.write(0, data=data, fua=False)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from nitro_emu.ebs.capsule import MAX_IO_BYTES, Command, Opcode, Outcome, Reply
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.link import LinkError
from nitro_emu.ebs.link_memory import LinkMemory
from nitro_emu.ebs.replicas import REPAIR_BYTES_PER_S, ReplicatedVolume
from nitro_emu.ebs.srd_link import SrdLink
from srd import Endpoint, EndpointConfig, Keys, SrdError
from srd.secure.config import SecurityConfig

HostPort = tuple[str, int]

DEFAULT_PORT: Final = 4420
"""NVMe over Fabrics' (IANA)."""


@asynccontextmanager
async def _endpoint(servers: Sequence[HostPort], security: SecurityConfig | None) -> AsyncIterator[Endpoint]:
    """Open an endpoint towards servers. Raises VolumeError."""
    try:
        endpoint = await Endpoint.open(towards=servers[0][0], config=EndpointConfig(security=security or Keys()))
    except SrdError as error:
        raise VolumeError(str(error)) from error
    try:
        yield endpoint
    finally:
        await endpoint.close()


@asynccontextmanager
async def attached(
    name: str,
    *,
    volume: int,
    size_bytes: int,
    servers: Sequence[HostPort],
    security: SecurityConfig | None = None,
    repair_bytes_per_s: float = REPAIR_BYTES_PER_S,
) -> AsyncIterator[ReplicatedVolume]:
    """Attach a volume, by its id, until the end of the block.

    Raises VolumeError if no majority of its servers answers in time, or another writer has it.
    """
    async with _endpoint(servers, security) as endpoint:
        memory = LinkMemory(endpoint)
        links = [SrdLink(endpoint, host, port) for host, port in servers]
        try:
            async with ReplicatedVolume(
                name, volume=volume, size_bytes=size_bytes, links=links, memory=memory,
                repair_bytes_per_s=repair_bytes_per_s,
            ) as device:  # fmt: skip
                yield device
        finally:
            await endpoint.close()
            memory.close()


async def create(
    volume: int, *, size_bytes: int, servers: Sequence[HostPort], security: SecurityConfig | None = None
) -> None:
    """Make a volume on all of its servers; again, if not all of them had done it. Raises VolumeError."""
    async with _endpoint(servers, security) as endpoint:
        command = Command(opcode=Opcode.CREATE, volume=volume, length=size_bytes)
        for server, reply in zip(servers, await _of_all(endpoint, servers, command), strict=True):
            if isinstance(reply, LinkError):
                raise VolumeError(f"{reply}; start the server there: nitro-volume serve")
            if reply.outcome is not Outcome.OK:
                raise VolumeError(f"{server[0]}:{server[1]}: cannot make a volume of {size_bytes} bytes: see its log")


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a server says of its replica."""

    server: HostPort
    failure: str | None
    """Why it says nothing."""
    epoch: int = 0
    is_marked: bool = False
    """Whether it is a replica of its last epoch."""
    corrupt_blocks: int = 0
    """That a scrub has found: the writer repairs them."""


async def status(
    volume: int, *, servers: Sequence[HostPort], security: SecurityConfig | None = None
) -> list[ReplicaReport]:
    """Return what servers say of a volume, whoever has attached it."""
    async with _endpoint(servers, security) as endpoint:
        replies = await _of_all(endpoint, servers, Command(opcode=Opcode.STATUS, volume=volume))
        return [_report(server, reply) for server, reply in zip(servers, replies, strict=True)]


async def scrub(
    volume: int, *, size_bytes: int, servers: Sequence[HostPort], security: SecurityConfig | None = None
) -> list[ReplicaReport]:
    """Have servers check all blocks against their checksums, 1 MiB at a time; a block that is corrupt is not read."""
    async with _endpoint(servers, security) as endpoint:

        async def one(server: HostPort) -> ReplicaReport:
            link, corrupt = SrdLink(endpoint, *server), 0
            report = ReplicaReport(server, "there is nothing to check")
            for offset in range(0, size_bytes, MAX_IO_BYTES):
                length = min(MAX_IO_BYTES, size_bytes - offset)
                report = _report(server, await _ask(link, Command(
                    opcode=Opcode.SCRUB, volume=volume, offset=offset, length=length
                )))  # fmt: skip
                if report.failure is not None:
                    break
                corrupt += report.corrupt_blocks
            return ReplicaReport(server, report.failure, report.epoch, report.is_marked, corrupt)

        return await asyncio.gather(*map(one, servers))


def _report(server: HostPort, reply: Reply | LinkError) -> ReplicaReport:
    if isinstance(reply, LinkError):
        return ReplicaReport(server, str(reply))
    if reply.outcome is not Outcome.OK:
        return ReplicaReport(server, reply.outcome.name)
    return ReplicaReport(server, None, reply.epoch, reply.epoch == reply.mark, reply.value)


async def _of_all(endpoint: Endpoint, servers: Sequence[HostPort], command: Command) -> list[Reply | LinkError]:
    return await asyncio.gather(*(_ask(SrdLink(endpoint, *server), command) for server in servers))


async def _ask(link: SrdLink, command: Command) -> Reply | LinkError:
    try:
        return await link.call(command)
    except LinkError as error:
        return error

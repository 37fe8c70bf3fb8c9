"""Volumes on servers, over SRD: made, attached, looked at and scrubbed.

servers = [("10.0.0.1", 4420), ("10.0.0.2", 4420), ("10.0.0.3", 4420)]
await create(new_id, size_bytes=1 << 30, servers=servers, security=security)
async with attached("vol-1", volume=new_id, size_bytes=1 << 30, servers=servers, security=security) as device:
    await device.write(0, data=data, fua=False)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from nitro_emu.ebs.capsule import BLANK, MAX_IO_BYTES, Command, Opcode, Outcome, Reply
from nitro_emu.ebs.catalog import Volume
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.link import LinkError, call
from nitro_emu.ebs.link_memory import LinkMemory
from nitro_emu.ebs.replicas import REPAIR_BYTES_PER_S, ReplicaStatus, ReplicatedVolume
from nitro_emu.ebs.server.entries import Kind
from nitro_emu.ebs.srd_link import SrdLink
from nitro_emu.ebs.view import majority
from srd import Endpoint, EndpointConfig, Keys, SrdError
from srd.secure.config import SecurityConfig

HostPort = tuple[str, int]

DEFAULT_PORT: Final = 4420
"""NVMe over Fabrics' (IANA)."""
STALL_S: Final = 5.0
"""Without a block that is repaired: longer than it takes to let in a server that has failed once."""


@asynccontextmanager
async def _endpoint(
    servers: Sequence[HostPort], security: SecurityConfig | None, *, bind: HostPort | None = None
) -> AsyncIterator[Endpoint]:
    """Open an endpoint towards servers, at any address or at this one. Raises VolumeError."""
    config = EndpointConfig(security=security or Keys())
    try:
        if bind is None:
            endpoint = await Endpoint.open(towards=servers[0][0], config=config)
        else:
            endpoint = await Endpoint.listen(*bind, config=config)
            endpoint.stop_accepting()
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
    roster: int = 0,
    security: SecurityConfig | None = None,
    bind: HostPort | None = None,
    repair_bytes_per_s: float = REPAIR_BYTES_PER_S,
) -> AsyncIterator[ReplicatedVolume]:
    """Attach a volume, by its id, until the end of the block; `roster`: how many servers have been replaced.

    `bind`: the own address and port; any, if there is none.

    Raises VolumeError if no majority of its servers answers in time, or (InUseError) another writer has it.
    """
    async with _endpoint(servers, security, bind=bind) as endpoint:
        memory = LinkMemory(endpoint)
        links = [SrdLink(endpoint, host, port) for host, port in servers]
        try:
            async with ReplicatedVolume(
                name, volume=volume, size_bytes=size_bytes, links=links, memory=memory, roster=roster,
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


async def create_blank(
    volume: int,
    *,
    size_bytes: int,
    server: HostPort,
    others: Sequence[HostPort],
    security: SecurityConfig | None = None,
) -> None:
    """Make a replica on a server that is to be filled from the others, of which there must be a majority.

    Raises VolumeError.
    """
    wanted = majority(len(others) + 1)
    reports = await status(volume, servers=others, security=security)
    able = [report for report in reports if report.failure is None and not report.is_blank]
    if len(able) < wanted:
        failures = "; ".join(
            f"{_text(report.server)}: {report.failure or 'is blank'}" for report in reports if report not in able
        )
        raise VolumeError(
            f"{wanted} of the other servers must have its data, and {len(able)} do ({failures}); start them"
        )
    async with _endpoint([server], security) as endpoint:
        command = Command(opcode=Opcode.CREATE, volume=volume, length=size_bytes, kind=Kind.ABSENT)
        reply = await _ask(SrdLink(endpoint, *server), command)
        if isinstance(reply, LinkError):
            raise VolumeError(f"{reply}; start the server there: nitro-volume serve")
        if reply.outcome is not Outcome.OK:
            raise VolumeError(f"{_text(server)}: cannot take a replica of {size_bytes} bytes: see its log")


def _text(server: HostPort) -> str:
    return f"{server[0]}:{server[1]}"


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
    is_blank: bool = False
    """Whether it has no data: it has lost it, or was not given it yet."""


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
            return replace(report, corrupt_blocks=corrupt)

        return await asyncio.gather(*map(one, servers))


async def repair(
    name: str,
    *,
    volume: int,
    size_bytes: int,
    servers: Sequence[HostPort],
    roster: int,
    numbers: Sequence[int],
    security: SecurityConfig | None = None,
) -> list[ReplicaStatus]:
    """Attach a volume until servers, by their numbers, have all that they lack; return what each one lacks then.

    One that is away, or lacks what nobody has, is given up when nothing has changed for STALL_S.

    Raises VolumeError: it cannot be attached, or (InUseError) another writer has it.
    """
    async with attached(
        name, volume=volume, size_bytes=size_bytes, servers=servers, roster=roster, security=security
    ) as device:
        before, now = None, device.status()
        while now != before:
            before = now
            with suppress(TimeoutError):
                async with asyncio.timeout(STALL_S):
                    for number in numbers:
                        await device.wait_whole(server=number)
                    return device.status()
            now = device.status()
        return now


def _report(server: HostPort, reply: Reply | LinkError) -> ReplicaReport:
    if isinstance(reply, LinkError):
        return ReplicaReport(server, str(reply))
    if reply.outcome is not Outcome.OK:
        return ReplicaReport(server, reply.outcome.name)
    return ReplicaReport(
        server, None, reply.epoch, is_marked=reply.epoch == reply.mark, corrupt_blocks=reply.value,
        is_blank=reply.mark == BLANK,
    )  # fmt: skip


async def _of_all(endpoint: Endpoint, servers: Sequence[HostPort], command: Command) -> list[Reply | LinkError]:
    return await asyncio.gather(*(_ask(SrdLink(endpoint, *server), command) for server in servers))


async def _ask(link: SrdLink, command: Command) -> Reply | LinkError:
    try:
        return await call(link, command)
    except LinkError as error:
        return error

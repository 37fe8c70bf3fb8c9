"""Volumes on servers, over SRD: made, attached, looked at and scrubbed.

await create(volume, security=security)            # a Volume of the catalog
async with attached(volume, security=security) as device:
    await device.write(0, data=data, fua=False)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from nitro_emu.ebs.capsule import BLANK, MAX_IO_BYTES, CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.catalog import Volume
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.link import LinkError
from nitro_emu.ebs.link_memory import LinkMemory
from nitro_emu.ebs.replicas import REPAIR_BYTES_PER_S, ReplicaStatus, ReplicatedVolume
from nitro_emu.ebs.server.entries import BlockKind
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
    volume: Volume,
    *,
    security: SecurityConfig | None = None,
    bind: HostPort | None = None,
    repair_bytes_per_s: float = REPAIR_BYTES_PER_S,
) -> AsyncIterator[ReplicatedVolume]:
    """Attach a volume until the end of the block. `bind`: the own address and port; any, if there is none.

    Raises VolumeError if no majority of its servers answers in time, or (InUseError) another writer has it.
    """
    async with _endpoint(volume.addresses, security, bind=bind) as endpoint:
        memory = LinkMemory(endpoint)
        links = [SrdLink(endpoint, host, port) for host, port in volume.addresses]
        try:
            async with ReplicatedVolume(
                volume.name, volume=volume.id, size_bytes=volume.size_bytes, links=links, memory=memory,
                roster=volume.roster, repair_bytes_per_s=repair_bytes_per_s,
            ) as device:  # fmt: skip
                yield device
        finally:
            await endpoint.close()
            memory.close()


async def create(volume: Volume, *, security: SecurityConfig | None = None) -> None:
    """Make a volume on all of its servers; again, if not all of them had done it. Raises VolumeError."""
    async with _endpoint(volume.addresses, security) as endpoint:
        command = CapsuleCommand(opcode=CapsuleOpcode.CREATE, volume=volume.id, length=volume.size_bytes)
        for server, reply in zip(volume.addresses, await _of_all(endpoint, volume.addresses, command), strict=True):
            _require_made(server, reply, what=f"make a volume of {volume.size_bytes} bytes")


async def create_blank(
    volume: Volume, *, server: HostPort, replaces: HostPort, security: SecurityConfig | None = None
) -> None:
    """Make a replica on a server that is to be filled from those it does not replace: a majority must have the data.

    Raises VolumeError.
    """
    others = [address for address in volume.addresses if address != replaces]
    wanted = majority(len(volume.addresses))
    reports = await status(volume.id, servers=others, security=security)
    able = [report for report in reports if report.failure is None and not report.is_blank]
    if len(able) < wanted:
        failures = "; ".join(
            f"{_text(report.server)}: {report.failure or 'is blank'}" for report in reports if report not in able
        )
        raise VolumeError(
            f"{wanted} of the other servers must have its data, and {len(able)} do ({failures}); start them"
        )
    async with _endpoint([server], security) as endpoint:
        command = CapsuleCommand(
            opcode=CapsuleOpcode.CREATE, volume=volume.id, length=volume.size_bytes, kind=BlockKind.ABSENT
        )
        (reply,) = await _of_all(endpoint, [server], command)
        _require_made(server, reply, what=f"take a replica of {volume.size_bytes} bytes")


def _require_made(server: HostPort, reply: CapsuleReply | LinkError, *, what: str) -> None:
    """Raise VolumeError unless a server has made a replica."""
    if isinstance(reply, LinkError):
        raise VolumeError(f"{reply}; start the server there: nitro-volume serve")
    if reply.outcome is not CapsuleOutcome.OK:
        raise VolumeError(f"{_text(server)}: cannot {what}: see its log")


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
        replies = await _of_all(endpoint, servers, CapsuleCommand(opcode=CapsuleOpcode.STATUS, volume=volume))
        return [_report(server, reply) for server, reply in zip(servers, replies, strict=True)]


async def scrub(volume: Volume, *, security: SecurityConfig | None = None) -> list[ReplicaReport]:
    """Have servers check all blocks against their checksums, 1 MiB at a time; a block that is corrupt is not read."""
    async with _endpoint(volume.addresses, security) as endpoint:

        async def one(server: HostPort) -> ReplicaReport:
            link, corrupt = SrdLink(endpoint, *server), 0
            report = ReplicaReport(server, "there is nothing to check")
            for offset in range(0, volume.size_bytes, MAX_IO_BYTES):
                length = min(MAX_IO_BYTES, volume.size_bytes - offset)
                command = CapsuleCommand(opcode=CapsuleOpcode.SCRUB, volume=volume.id, offset=offset, length=length)
                report = _report(server, await _ask(link, command))
                if report.failure is not None:
                    break
                corrupt += report.corrupt_blocks
            return replace(report, corrupt_blocks=corrupt)

        return await asyncio.gather(*map(one, volume.addresses))


async def repair(
    volume: Volume, *, numbers: Sequence[int], security: SecurityConfig | None = None
) -> list[ReplicaStatus]:
    """Attach a volume until servers, by their numbers, have all that they lack; return what each one lacks then.

    One that is away, or lacks what nobody has, is given up when nothing has changed for STALL_S.

    Raises VolumeError: it cannot be attached, or (InUseError) another writer has it.
    """
    async with attached(volume, security=security) as device:
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


def _report(server: HostPort, reply: CapsuleReply | LinkError) -> ReplicaReport:
    if isinstance(reply, LinkError):
        return ReplicaReport(server, str(reply))
    if reply.outcome is not CapsuleOutcome.OK:
        return ReplicaReport(server, reply.outcome.name)
    return ReplicaReport(
        server, None, reply.epoch, is_marked=reply.epoch == reply.mark, corrupt_blocks=reply.value,
        is_blank=reply.mark == BLANK,
    )  # fmt: skip


async def _of_all(
    endpoint: Endpoint, servers: Sequence[HostPort], command: CapsuleCommand
) -> list[CapsuleReply | LinkError]:
    return await asyncio.gather(*(_ask(SrdLink(endpoint, *server), command) for server in servers))


async def _ask(link: SrdLink, command: CapsuleCommand) -> CapsuleReply | LinkError:
    try:
        return await link.call(command)
    except LinkError as error:
        return error

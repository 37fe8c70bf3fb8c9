"""What a hostile program writes, by seed: send requests, receive descriptors, admin commands, half of them valid."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any, Final

from nitro_emu.efa.abi import admin, commands, io
from nitro_emu.efa.abi.limits import MAX_KEY, WIDE_WQE_BYTES

EDGES: Final = (
    0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 80, 81, 127, 128, 255, 256, 4095, 4096, 8192, 8900, 8924, 8925, 65535, 65536,
    (1 << 24) - 1, 1 << 24, (1 << 30), (1 << 30) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 47) - 1,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1,
)  # fmt: skip
"""Values for fields: the limits of every width and of the device, and their neighbours."""
LENGTHS: Final = (0, 1, 8, 64, 1000, 4096, 8000, 8924, 8925, 65535, 65536, 200_000)
FOREIGN_QP_NUMS: Final = 8
"""Numbers below this may be queue pairs of others, who have one or two."""
MUTATION_SHARE: Final = 0.15
"""Fraction of the entries of which a byte is changed at random."""


class ValidNames:
    """What is valid at the moment: numbers and addresses that entries may name."""

    def __init__(self) -> None:
        self.ahs: list[int] = []
        self.qp_nums: list[int] = []
        self.memory: list[tuple[int, int, int, int]] = []  # address, length, lkey, rkey
        self.qkey = 0


class EntryForge:
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def edge(self, bits: int) -> int:
        """Return a number of so many bits: a limit, or any."""
        rng = self._rng
        value = rng.choice(EDGES) if rng.random() < 0.7 else rng.getrandbits(bits)
        return value & (1 << bits) - 1

    def maybe(self, valid: int, *, bits: int, share: float = 0.92) -> int:
        """Return a valid number, mostly."""
        return valid if self._rng.random() < share else self.edge(bits)

    def sge(self, target: ValidNames) -> tuple[int, int, int]:
        """Return a buffer, mostly registered."""
        rng = self._rng
        if not target.memory:
            return self.edge(64), self.edge(32), self.edge(24)
        address, size, lkey, _ = rng.choice(target.memory)
        offset = rng.randrange(size)
        length = min(rng.choice(LENGTHS), size - offset)
        return (
            self.maybe(address + offset, bits=64),
            self.maybe(length, bits=32),
            self.maybe(lkey, bits=24),
        )

    def wqe(self, target: ValidNames, *, phase: int, wqe_bytes: int) -> bytes:
        rng = self._rng
        op = rng.choice((io.SendOp.SEND, io.SendOp.SEND, io.SendOp.SEND, io.SendOp.RDMA_WRITE, io.SendOp.RDMA_READ))
        inline = rng.random() < 0.2 and not (op is not io.SendOp.SEND and wqe_bytes < WIDE_WQE_BYTES)
        sges = () if inline else tuple(io.Sge(*self.sge(target)) for _ in range(rng.choice((0, 1, 1, 1, 2))))
        remote = None
        if op is not io.SendOp.SEND:
            sges = sges[:1]
            remote = self._remote(target, length=sum(sge.length for sge in sges))
        room = wqe_bytes - io.META_BYTES - (0 if remote is None else io.SGE_BYTES)
        data = rng.randbytes(rng.randrange(room + 1)) if inline and op is not io.SendOp.RDMA_READ else None
        raw = io.pack_wqe(
            op,
            req_id=rng.getrandbits(16),
            phase=self.maybe(phase, bits=1, share=0.98),
            dest_qp_num=self.maybe(self._qp_num(target), bits=16),
            ah=self.maybe(self._ah(target), bits=16),
            qkey=self.maybe(target.qkey, bits=32),
            sges=sges,
            data=data,
            remote=remote,
            immediate=rng.getrandbits(32) if rng.random() < 0.3 else None,
            hints=self.maybe(0, bits=1),
            comp_req=rng.random() < 0.9,
            wqe_bytes=wqe_bytes,
        )
        return self.mutated(raw)

    def _qp_num(self, target: ValidNames) -> int:
        rng = self._rng
        return rng.choice(target.qp_nums) if target.qp_nums and rng.random() < 0.8 else rng.randrange(FOREIGN_QP_NUMS)

    def _ah(self, target: ValidNames) -> int:
        return self._rng.choice(target.ahs) if target.ahs else self.edge(16)

    def _remote(self, target: ValidNames, *, length: int) -> io.RemoteMemory:
        rng = self._rng
        if not target.memory:
            return io.RemoteMemory(self.edge(32), self.edge(64), length & 0xFFFFFFFF)
        address, size, _, rkey = rng.choice(target.memory)
        return io.RemoteMemory(
            self.maybe(rkey, bits=32),
            self.maybe(address + rng.randrange(size), bits=64),
            self.maybe(length, bits=32),
        )

    def rx(self, target: ValidNames, *, first: bool = True, last: bool = True) -> bytes:
        address, length, lkey = self.sge(target)
        rng = self._rng
        raw = io.pack_rx(
            req_id=rng.getrandbits(16), address=address, length=min(length, 0xFFFF), lkey=lkey & MAX_KEY,
            first=first, last=last,
        )  # fmt: skip
        return self.mutated(raw, share=0.02)

    def mutated(self, raw: bytes, *, share: float = MUTATION_SHARE) -> bytes:
        rng = self._rng
        if rng.random() >= share:
            return raw
        changed = bytearray(raw)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8)))
        return bytes(changed)

    def any_command(self) -> commands.Command:
        rng = self._rng
        kind: Any = rng.choice(list(commands.COMMANDS.values()))
        sample = kind.unpack(bytes(admin.ENTRY_BYTES))
        values: list[Any] = []
        for field in fields(kind):
            if isinstance(getattr(sample, field.name), bytes):
                values.append(rng.randbytes(16))
            else:
                values.append(rng.choice((0, 1, 2, rng.randrange(64), rng.randrange(256))))
        command: commands.Command = kind(*values)
        return command

"""What is measured, and how the other end is addressed; each as an object of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

from nitro_emu.abi.gid import GID_BYTES
from nitro_emu.errors import NitroError

MAX_BYTES: Final = 8 << 20
"""The largest message, as of perftest's --all."""

MAX_SEND_BYTES: Final = 65535
"""Of a datagram."""

MAX_ITERATIONS: Final = 100_000_000
MAX_DEPTH: Final = 2048
"""Requests of a queue pair at a time: half of the largest send queue."""


_Member = TypeVar("_Member", bound=StrEnum)


class PerfError(NitroError):
    """A measurement cannot be made, or its payload was wrong."""


class Tool(StrEnum):
    """What is measured."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"


class Operation(StrEnum):
    """How payload is moved."""

    SEND = "send"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Plan:
    """A measurement, as the client has asked for it."""

    tool: Tool
    operation: Operation
    sizes: Sequence[int]
    """Bytes of a message, one run each."""
    iterations: int
    """Messages of a run."""
    depth: int = 1
    """Requests at a time, of a bandwidth measurement."""
    check: bool = False
    """Whether every payload is compared."""

    @property
    def possible_sizes(self) -> list[int]:
        """The sizes that any device could have: a SEND is a packet, which is shorter than `MAX_SEND_BYTES`."""
        most = MAX_SEND_BYTES if self.operation == Operation.SEND else MAX_BYTES
        return [min(size, most) for size in self.sizes]

    def within(self, mtu_bytes: int) -> Self:
        """Return the plan for devices with this MTU: without the sizes that a SEND cannot have. Raises PerfError."""
        if self.operation != Operation.SEND:
            return self
        if not (sizes := [size for size in self.sizes if size <= mtu_bytes]):
            raise PerfError(f"size: {min(self.sizes)} is more than a SEND may have, {mtu_bytes}; use less, or --write")
        return replace(self, sizes=sizes)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
        return {
            "tool": self.tool,
            "operation": self.operation,
            "sizes": list(self.sizes),
            "iterations": self.iterations,
            "depth": self.depth,
            "check": self.check,
        }

    @classmethod
    def of_untrusted(cls, fields: Mapping[str, Any]) -> Self:
        """Return the plan that the other end sent. Raises PerfError."""
        sizes = fields.get("sizes")
        if not isinstance(sizes, list) or not 1 <= len(sizes) <= 64:
            raise PerfError("the other end sent no sizes; both ends need the same version")
        return cls(
            tool=_member_untrusted(Tool, fields.get("tool")),
            operation=_member_untrusted(Operation, fields.get("operation")),
            sizes=tuple(number_untrusted({"size": size}, "size", low=1, high=MAX_BYTES) for size in sizes),
            iterations=number_untrusted(fields, "iterations", low=1, high=MAX_ITERATIONS),
            depth=number_untrusted(fields, "depth", low=1, high=MAX_DEPTH),
            check=fields.get("check") is True,
        )


@dataclass(frozen=True, slots=True)
class Address:
    """How an end's queue pair and memory are addressed."""

    gid: bytes
    qpn: int
    qkey: int
    rkey: int
    memory: int
    """The address of its registered memory, in its own process."""
    mtu_bytes: int
    """Its largest SEND."""

    def as_dict(self) -> dict[str, Any]:
        """Return the address as JSON has it."""
        return {
            "gid": self.gid.hex(),
            "qpn": self.qpn,
            "qkey": self.qkey,
            "rkey": self.rkey,
            "memory": self.memory,
            "mtu_bytes": self.mtu_bytes,
        }

    @classmethod
    def of_untrusted(cls, fields: Mapping[str, Any]) -> Self:
        """Return the address that the other end sent. Raises PerfError."""
        text = fields.get("gid")
        try:
            gid = bytes.fromhex(text) if isinstance(text, str) else b""
        except ValueError:
            gid = b""
        if len(gid) != GID_BYTES:
            raise PerfError(f"the other end sent no GID but {text!r:.100}; both ends need the same version")
        return cls(
            gid=gid,
            qpn=number_untrusted(fields, "qpn", low=0, high=(1 << 16) - 1),
            qkey=number_untrusted(fields, "qkey", low=0, high=(1 << 32) - 1),
            rkey=number_untrusted(fields, "rkey", low=0, high=(1 << 32) - 1),
            memory=number_untrusted(fields, "memory", low=0, high=(1 << 64) - 1),
            mtu_bytes=number_untrusted(fields, "mtu_bytes", low=1, high=1 << 30),
        )


def number_untrusted(fields: Mapping[str, Any], name: str, *, low: int, high: int) -> int:
    """Return a number that the other end sent. Raises PerfError."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise PerfError(f"the other end sent {name}: {value!r:.100}, which is not within {low} and {high}")
    return value


def _member_untrusted(kind: type[_Member], value: object) -> _Member:
    try:
        return kind(str(value))
    except ValueError:
        raise PerfError(f"the other end asked for {value!r:.100}; there are {', '.join(kind)}") from None

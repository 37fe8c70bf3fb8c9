"""The driver of a card's devices in an application's process: verbs.

Devices are found by `device_names`, and opened by `Context`. The names are those of libibverbs; errors are `VerbsError`
with an errno. Payload lies in a `devmem.Region`, registered by `MemoryRegion`. Everything is a context manager, and is
also released when nothing refers to it. All calls may be made from several threads.
"""

from devmem.registry import Access
from nitro_emu.efa.abi.enums import QpState
from nitro_emu.efa.abi.io import CompStatus, ProcessingHint, SendOp, Sge
from nitro_emu.efa.verbs.comp_channel import CompletionChannel
from nitro_emu.efa.verbs.completions import COMPLETION, Completions, byte_lengths, wc_status
from nitro_emu.efa.verbs.context import Context, DeviceAttributes, card_directory, device_names
from nitro_emu.efa.verbs.cq import CompletionQueue
from nitro_emu.efa.verbs.mr import MemoryRegion
from nitro_emu.efa.verbs.qp import QpOptions, QueuePair
from nitro_emu.efa.verbs.resource import AddressHandle, ProtectionDomain
from nitro_emu.efa.verbs.wr import (
    RecvRequest,
    SendFlags,
    SendOps,
    SendRequest,
    WcFlags,
    WcOpcode,
    WcStatus,
    WorkCompletion,
    WrOpcode,
)
from nitro_emu.errors import VerbsError

__all__ = [
    "COMPLETION",
    "Access",
    "AddressHandle",
    "CompStatus",
    "CompletionChannel",
    "CompletionQueue",
    "Completions",
    "Context",
    "DeviceAttributes",
    "MemoryRegion",
    "ProcessingHint",
    "ProtectionDomain",
    "QpOptions",
    "QpState",
    "QueuePair",
    "RecvRequest",
    "SendFlags",
    "SendOp",
    "SendOps",
    "SendRequest",
    "Sge",
    "VerbsError",
    "WcFlags",
    "WcOpcode",
    "WcStatus",
    "WorkCompletion",
    "WrOpcode",
    "byte_lengths",
    "card_directory",
    "device_names",
    "wc_status",
]

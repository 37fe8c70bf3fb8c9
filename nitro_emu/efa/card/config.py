"""The settings of a virtual function of kind EFA: those of all, and how many objects its programs may have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nitro_emu.fields import Size
from nitro_emu.peers.vf_config import VfConfig


class EfaConfig(VfConfig):
    """An RDMA device for programs that use verbs."""

    kind: Literal["efa"] = "efa"

    max_qps: int = Field(default=256, ge=1, le=1 << 15)
    """Queue pairs. A number has 16 bits; half of them are left for the generations of a number. EFA has 256 a VF."""

    max_cqs: int = Field(default=512, ge=1, le=1 << 15)
    """Completion queues: two a queue pair."""

    max_mrs: int = Field(default=4096, ge=1, le=1 << 18)
    """Memory registrations. Each is a mapping of the card's, of which a process has 65,530 (vm.max_map_count)."""

    max_pds: int = Field(default=256, ge=1, le=1 << 15)
    """Protection domains: one a queue pair at most."""

    max_ahs: int = Field(default=4096, ge=1, le=(1 << 16) - 1)
    """Address handles, as many as an endpoint has peers. A number has 16 bits, and 0xFFFF means unknown."""

    max_connections: int = Field(default=64, ge=1, le=4096)
    """Programs that have the device open at the same time: a rank for each core of a large host."""

    max_mr_bytes: Size = Field(default=8 << 30, ge=4096, lt=1 << 44)
    """Registered memory of all programs together. It is theirs, and mapped by the card: the bound is on page tables.
    Programs are told it in pages, a number of 32 bits (QUEUE_ATTR)."""

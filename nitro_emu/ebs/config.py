"""The settings of a virtual function of kind EBS: a volume that the card attaches, for programs of its host."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from nitro_emu.ebs.catalog import DEFAULT_PATH
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.limits import MAX_BYTES_PER_S, MAX_IOPS, Provisioned
from nitro_emu.fields import Count, File, Name, Rate
from nitro_emu.peers.vf_config import VfConfig

UNUSED: Final = (
    "uid", "vpc", "private_address", "bandwidth", "packets_per_second", "paths", "mtu", "memory_bytes",
)  # fmt: skip
"""What other kinds have, and a volume has not."""


class EbsConfig(VfConfig):
    """A block device. From `address` and `port` it reaches its servers, which `security` is about."""

    kind: Literal["ebs"]

    volume: Name
    """Its name in the catalog, which has its servers, and its key, wrapped for this card."""

    catalog: File = Field(default=DEFAULT_PATH)
    """File of the volumes that there are: `nitro-volume create --catalog`. It is read when the card starts."""

    iops: Count | None = Field(default=None, ge=1, le=MAX_IOPS)
    """io2's limit: requests of up to 256K a second. Default: none."""

    throughput: Rate | None = Field(default=None, ge=8 * BLOCK_BYTES, le=8 * MAX_BYTES_PER_S)
    """Bits a second. Default: IOPS x 256K."""

    @model_validator(mode="after")
    def _check_unused(self) -> Self:
        for name in UNUSED:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} stands beside kind ebs, which does not use it; remove it")
        return self

    @property
    def provisioned(self) -> Provisioned:
        """The limits."""
        return Provisioned.io2(self.iops, None if self.throughput is None else self.throughput // 8)

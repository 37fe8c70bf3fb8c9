"""The settings of a virtual function of kind ENA Express: those of all, and its tenant's network interface."""

from __future__ import annotations

import ipaddress
import json
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netns.base.yaml_file import Strict
from nitro_emu.fields import Count, Name
from nitro_emu.peers.vf_config import VfConfig
from nitro_emu.vpc.fields import Cidr
from srd.tunnel.config import MAX_MTU, MIN_MTU
from srd.tunnel.tun import MAX_NAME_BYTES


class InterfaceFields(Strict):
    """A tenant's network interface: that of a virtual function of kind `ena-express`."""

    subnet: Cidr
    """The subnet of the VPC that the private address is in; the kernel routes it to the interface."""

    routes: tuple[Cidr, ...] = Field(default=(), max_length=64, strict=False)
    """Further networks that are routed to it: other subnets of the VPC, and of peered ones."""

    netns: Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,255}$")] | Annotated[int, Field(ge=1)] | None = None
    """The network namespace in which it is: a name, as `ip netns add` makes it, or the id of a process in it. Default:
    the card's own."""

    name: str | None = Field(default=None, pattern="^[a-zA-Z0-9_.-]{1,15}$")
    """Its name in the kernel. Default: that of the virtual function."""

    mtu: int = Field(default=8900, ge=MIN_MTU, le=MAX_MTU)
    """Longest packet. AWS recommends 8900 with ENA Express; TCP's super-packets are longer in any case."""

    max_flows: Count = Field(default=65_536, ge=64, le=1 << 20)
    """Flows that are tracked: 500 bytes each. What would be more counts in `conntrack_allowance_exceeded`."""


class ExpressConfig(VfConfig):
    """A network interface for programs that do not use verbs. It is always in a VPC, by whose rules its packets go."""

    judges_packets: ClassVar[bool] = True

    kind: Literal["ena-express"]

    interface: InterfaceFields

    vpc: Name

    private_address: str

    @model_validator(mode="after")
    def _check_interface(self) -> Self:
        if ipaddress.ip_address(self.private_address) not in ipaddress.ip_network(self.interface.subnet):
            raise ValueError(f"interface.subnet: {self.interface.subnet} does not have {self.private_address}")
        if len(self.interface.name or self.name) > MAX_NAME_BYTES:
            raise ValueError(
                f"name: {self.name} has more than {MAX_NAME_BYTES} characters; give interface.name a shorter one"
            )
        return self

    @property
    def kept_settings(self) -> str:
        """What the kernel was told of the interface, as text."""
        told = self.interface.model_dump(exclude={"max_flows"}) | {"private_address": self.private_address}
        return json.dumps(told, sort_keys=True)

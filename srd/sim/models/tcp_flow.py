"""An endless TCP flow beside others, such as those of SRD, on any virtual fabric."""

from __future__ import annotations

from netns.backends.virtual.fabric import VirtualFabric
from netns.topology.model import ETHERNET_HEADER_BYTES
from srd.sim.models.controllers import TcpController
from srd.sim.models.flow import FlowReceiver
from srd.sim.models.nic import Nic
from srd.sim.models.tcp import ENDLESS, TcpFlowSender
from srd.sim.models.transports import tcp_framing


class TcpFlow:
    """A flow between two hosts that have no other; `start` it. Its counts are `sender.delivered`, `lost` and `sent`."""

    def __init__(self, fabric: VirtualFabric, source: str, destination: str, *, controller: TcpController) -> None:
        framing = tcp_framing(mtu=fabric.topology.mtu)
        self.packet_bytes = fabric.topology.mtu + ETHERNET_HEADER_BYTES
        """Of a full one on the wire."""
        self.sender = TcpFlowSender(ENDLESS, controller=controller)
        self._nic = Nic(fabric, source)
        self._flow = self._nic.flow(
            Nic(fabric, destination), size_bytes=ENDLESS * self.packet_bytes,
            framing=framing, sender=self.sender, receiver=FlowReceiver(ENDLESS),
        )  # fmt: skip

    def start(self) -> None:
        self._nic.start(self._flow)

"""A virtual function of kind ENA Express: a tenant's network interface, whose packets are SRD messages between cards.

Its endpoint is that of every virtual function (`peers.endpoint`): so who is at the other end, and that it is the
interface of that address, is settled before the first packet. What the tunnel does with packets (`srd.tunnel`) is done
here, too; this module decides which packets pass.

1. A packet of the tenant passes if its source is the interface's own address, and its flow is allowed by the security
   groups: an egress rule, or it belongs to a flow that the other end began (`nitro_emu.vpc.flows`).
2. It goes to the virtual function that has its destination, by the mapping. A peer is opened when the first packet
   needs it, and again when it has ended; packets wait for that in the queue towards it.
3. A packet of another card passes if its source is the address that the peer was let in with, its destination is this
   interface's, and its flow is allowed: an ingress rule, or it belongs to a flow that this end began.
4. A new mapping ends peers without a way, or to what has moved; flows are judged again with their next packet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Final

from devmem.registry import Registry
from nitro_emu.errors import CardError
from nitro_emu.express.config import ExpressConfig
from nitro_emu.express.destinations import PACKETS_KEY, ExpressDestinations
from nitro_emu.express.handover import KeptInterface
from nitro_emu.express.interface import adopt_interface, open_interface
from nitro_emu.gid import IPV6_PORT, address_of_untrusted, gid_of
from nitro_emu.peers.endpoint import VfEndpoint
from nitro_emu.peers.introduction import INTRODUCTION_KEY, INTRODUCTION_REQUEST
from nitro_emu.peers.outgoing import OutgoingPeer
from nitro_emu.peers.tenancy import PacketTenancy
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.vpc.flows import CONNTRACK_EXCEEDED, NO_VERSION, FlowTable, read_untrusted
from srd.batch import MessageBatch
from srd.inbox import PeerInbox
from srd.message import Message
from srd.peer import Peer
from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import Completion, Event, MessageReceived, MessagesReceived, PeerEnded, PeerOpened
from srd.proto.wire.data import Address
from srd.proto.wire.status import Status
from srd.tunnel.config import TunnelConfig
from srd.tunnel.counters import Counters
from srd.tunnel.errors import InterfaceGoneError
from srd.tunnel.frames import FRAME_BYTES
from srd.tunnel.gateway import Gateway
from srd.tunnel.member import MERGED_BYTES, Member
from srd.tunnel.packets import InnerPacket, InnerPacketError
from srd.tunnel.tun import Tun

ENA_SRD_MODE: Final = 3
"""ENA Express is on, and UDP uses it, too."""


class ExpressFunction:
    """One interface. `start` it in a running event loop; `close` it."""

    def __init__(
        self,
        config: ExpressConfig,
        *,
        trust: VfTrust,
        is_shared: bool,
        kept: KeptInterface | None,
        on_failure: Callable[[str], None],
    ) -> None:
        """`is_shared`: whether others wait for the loop; `kept`: the interface, if an update has kept it.

        `on_failure` is called with the reason when the engine has failed. Raises CardError.
        """
        if not isinstance(trust.tenancy, PacketTenancy):
            raise CardError(f"{config.name}: kind ena-express needs an interface in a VPC")
        self.config = config
        self.tenancy = trust.tenancy
        self.endpoint = VfEndpoint(config, trust=trust, on_failure=on_failure)
        self.log = self.endpoint.log
        self.sources = self.endpoint.sources
        self._is_shared = is_shared
        self._kept = kept
        self._on_failure = on_failure
        self._fields = config.interface
        self._address = _packed(self.tenancy.gid)
        self._tun: Tun | None = None
        self._gateway: Gateway | None = None
        self._remotes: dict[bytes, OutgoingPeer] = {}  # by address
        self._members: dict[int, Member] = {}  # by number of the peer
        self._inboxes: dict[int, PeerInbox] = {}  # likewise
        self.flows = FlowTable(limit=self._fields.max_flows, judge=self.tenancy.flow_refusal)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the interface, or go on with the one that an update has kept, and open the engine. Raises CardError."""
        kept, self._kept = self._kept, None
        if kept is None:
            self._tun = open_interface(self._fields, name=self.config.name, address=self.config.private_address)
        else:
            self._tun = adopt_interface(kept.fds, index=kept.index, name=self.config.name)
        self.endpoint.open(
            max_message_bytes=MERGED_BYTES,
            memory=Registry(),  # of which nothing is registered
            destinations=ExpressDestinations(self.sources),
            on_event=self._on_event,
        )
        self._gateway = Gateway(self._tun, config=TunnelConfig(), routing=self, on_failure=self._on_interface_failed)
        if kept is not None:
            self.flows.restore(kept.flows, now=self.gateway.now)
        self.endpoint.engine().driver.share_loop(is_shared=self._is_shared)

    def keep(self) -> KeptInterface | None:
        """Return the interface and the flows for the program that replaces this one; None before `start`."""
        if self._tun is None:
            return None
        return KeptInterface(
            settings=self.config.kept_settings,
            fds=self._tun.keep_over_exec(),
            index=self._tun.index,
            flows=tuple(self.flows.saved(now=self.gateway.now)),
        )

    @property
    def gateway(self) -> Gateway:
        """What reads the interface. Raises CardError before `start`."""
        if self._gateway is None:
            raise CardError(f"{self.config.name} has not started")
        return self._gateway

    @property
    def interface(self) -> str | None:
        """The interface's name; None: it was deleted."""
        with suppress(InterfaceGoneError):
            return None if self._tun is None else self._tun.name
        return None

    def on_new_mapping(self) -> None:
        """End the peers that a new mapping does not allow any more."""
        self.endpoint.on_new_mapping()

    def keep_alive(self) -> None:
        """Do nothing: no program has it open."""

    async def drain(self) -> None:
        """Wait for nothing: packets may be lost."""

    def _on_interface_failed(self, error: Exception) -> None:
        """Go on without the interface: whoever may delete it is its tenant, whose others are not to notice."""
        if isinstance(error, InterfaceGoneError):
            self.log.error("%s: it is made again when the card is started anew", error)
        else:
            self._on_failure(f"its interface: {error!r}")

    def close(self) -> None:
        """Close the engine, and delete the interface."""
        with ExitStack() as stack:
            if self._tun is not None:
                stack.callback(self._tun.close)
            stack.callback(self.endpoint.close)
            if self._gateway is not None:
                stack.callback(self._gateway.close)

    def fail(self) -> None:
        """Close it: the tenant sees the interface go."""
        self.close()

    # -- which packets pass (srd.tunnel.routing.Routing) --------------------------------------------------------------

    def member_for(self, inner: InnerPacket, frame: memoryview, *, now: float) -> Member | str:
        """Return who a packet of the tenant goes to, or why it is dropped."""
        if inner.source != self._address:
            return "spoofed_source"
        reason = self._flow_refusal_untrusted(inner, frame[FRAME_BYTES:], is_outbound=True, now=now)
        return self._member_at(inner.destination) if reason is None else reason

    def refusal_untrusted(self, member: Member, inner: InnerPacket, packet: memoryview | bytes) -> str | None:
        """Return why a packet of another card is dropped; None: it is not."""
        source = self.sources.named(member.peer.number)
        if source is None or source.gid is None or _packed(source.gid) != inner.source:
            return "spoofed_source"
        if inner.destination != self._address:
            return "other_destination"
        return self._flow_refusal_untrusted(inner, packet, is_outbound=False, now=self.gateway.now)

    def _flow_refusal_untrusted(
        self, inner: InnerPacket, packet: memoryview | bytes, *, is_outbound: bool, now: float
    ) -> str | None:
        version = self.tenancy.rules_version
        if version == NO_VERSION:  # flows of before an update live until there is a mapping
            return "no_mapping"
        try:
            tracked = read_untrusted(inner, packet)
        except InnerPacketError as error:
            return error.reason
        return self.flows.refusal(
            tracked,
            is_outbound=is_outbound,
            peer=inner.destination if is_outbound else inner.source,
            version=version,
            now=now,
        )

    def remove(self, member: Member) -> None:
        """Forget a member that has ended."""
        self._members.pop(member.peer.number, None)

    # -- peers ------------------------------------------------------------------------------------------------------

    def _member_at(self, address: bytes) -> Member | str:
        """Return the member that sends to an address; its peer is opened if there is none."""
        remote = self._remotes.get(address)
        if remote is None:
            gid = gid_of(str(ipaddress.ip_address(address)), port=IPV6_PORT)
            remote = self._remotes[address] = self.endpoint.remote(gid)
        if remote.peer is None:
            self._open(remote)
        member = None if remote.peer is None else self._members.get(remote.peer)
        return "unreachable" if member is None else member

    def _open(self, remote: OutgoingPeer) -> None:
        """Open a peer, if that may be; packets wait in its member until it is let in."""
        remote.post(self._on_let_in, fail=_ignore, number=0)  # the only one: it opens the peer
        if remote.peer is not None and (destination := remote.destination) is not None:
            self._add(remote.peer, address=(destination.host, destination.port), core=None)

    def _on_let_in(self, peer: int) -> None:
        self._members[peer].join()

    def _add(self, number: int, *, address: Address, core: PeerCore | None) -> Member:
        """Make a member of a peer; `core`: None if this end opens it."""
        inbox = self._inboxes[number] = PeerInbox()
        peer = Peer(
            self.endpoint.engine(),
            number=number,
            address=address,
            core=core,
            inbox=inbox,
            incoming=core is not None,
            key=PACKETS_KEY,
        )
        member = self._members[number] = self.gateway.add(peer)
        peer.attach(member)
        return member

    # -- events -----------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case Completion(request=request) if request == INTRODUCTION_REQUEST:
                self.endpoint.on_hello_completed(event)
            case Completion():
                if (inbox := self._inboxes.get(event.peer)) is not None:
                    inbox.complete(event.request, status=event.status)
            case PeerOpened():
                self._on_opened(event)
            case PeerEnded():
                self._on_ended(event)
            case MessageReceived():
                self._on_message(event)
            case MessagesReceived():
                engine = self.endpoint.engine()
                batch = MessageBatch(event, queues=engine.queues, release=engine.release)
                if (inbox := self._inboxes.get(event.peer)) is not None:
                    inbox.deliver(batch)
                else:
                    batch.abandon()

    def _on_message(self, event: MessageReceived) -> None:
        engine = self.endpoint.engine()
        message = Message(event, queues=engine.queues, release=engine.release)
        inbox = self._inboxes.get(event.peer)
        if event.key == INTRODUCTION_KEY:
            self.endpoint.on_introduction_untrusted(event.peer, message.data())
        elif inbox is None:
            message.release()
        else:
            inbox.deliver(message)

    def _on_opened(self, event: PeerOpened) -> None:
        self.endpoint.on_opened(event)
        core = self.endpoint.engine().core.peer(event.peer)
        if event.incoming:
            self._add(event.peer, address=event.address, core=core).join()  # nothing is admitted before it was let in
        elif (member := self._members.get(event.peer)) is not None:
            member.peer.opened(core)

    def _on_ended(self, event: PeerEnded) -> None:
        if (inbox := self._inboxes.pop(event.peer, None)) is not None:
            inbox.end()
        self.endpoint.on_ended(event)

    # -- counters -----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return where it is, and to whom it is connected."""
        return {
            "interface": self.interface,
            "netns": self._fields.netns,
            "peers": len(self.endpoint.engine().core.open_peers),
        }

    def stats(self) -> dict[str, Any]:
        """Return its counters, those of ENA Express by ENA's names."""
        totals, used = self.gateway.totals(), round(100 * self.gateway.memory.used_fraction)
        allowance = replace(
            self.endpoint.allowance_counters(), conntrack_allowance_exceeded=totals.dropped[CONNTRACK_EXCEEDED]
        )
        return {
            "ena": {name: getattr(totals, name) for name in Counters.__slots__ if name != "dropped"},
            "ena_state": {
                "ena_srd_mode": ENA_SRD_MODE,
                "ena_srd_resource_utilization": used,
                "flows": len(self.flows),
            },
            "dropped": {reason: count for reason, count in totals.dropped.items() if reason != CONNTRACK_EXCEEDED},
            "vpc": asdict(self.tenancy.counters),
            "allowance": asdict(allowance),
            "security": asdict(self.endpoint.security_counters()),
        }


@lru_cache(maxsize=65_536)  # for each packet that comes
def _packed(gid: bytes) -> bytes:
    """Return the address that a GID is made of, as 4 or 16 bytes."""
    host, _ = address_of_untrusted(gid)
    return ipaddress.ip_address(host).packed


def _ignore(status: Status) -> None:
    """Do nothing: the member has dropped what waited."""

"""The end of a tunnel that others connect to: a star, whose clients each have addresses of their own.

Rules.
1. A client that is not admitted (`allowed.AddressPolicy`) is told why, and its peer is closed.
2. With a file of peers an address belongs to a key, and the newest session of the key has it.
3. Without one the first to come has an address, as long as its session is alive: keys may be anybody's, and with a
   shared secret, one certificate for all, or plain text all clients are the same to a listener. So another one that
   wants it waits until the session has acknowledged a message, and is refused; or until it ends, or has acknowledged
   nothing within ANSWER_WITHIN_S, and has the address: often it is the same client, which has crashed.
4. Packets are sent to a client when it has acknowledged that it may join, as messages overtake each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from netns.base.addresses import host_port_text
from netns.base.tasks import Tasks
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.log_limit import RateLimit
from srd.tunnel.allowed import AddressPolicy, AllowedAddresses
from srd.tunnel.device import TunnelDevice
from srd.tunnel.encapsulation import EachAddress, Encapsulation, Owners
from srd.tunnel.errors import TunnelError
from srd.tunnel.frames import CONTROL
from srd.tunnel.gateway import Gateway, send_control
from srd.tunnel.greeting import Network, hello_untrusted, refusal, welcome
from srd.tunnel.member import Member
from srd.tunnel.routing import NetworkRouting

GREETING_WITHIN_S: Final = 5.0
"""How long a peer may take to say what it wants."""
MAX_NEWCOMERS: Final = 256
"""Peers that have not said it, or wait for an address; more are closed at once."""
ANSWER_WITHIN_S: Final = 2.0
"""How long who has an address may take to acknowledge a message: as `TunnelConfig.unanswered_s`. SRD itself ends a peer
from which nothing comes within a second or so."""
RECORDS_PER_S: Final = 1.0
RECORD_BURST: Final = 50
"""Of the log, as whoever may connect causes as many as it likes: 86,400 lines a day at most."""

_log: Final = logging.getLogger(__name__)
_log.addFilter(RateLimit(per_s=RECORDS_PER_S, burst=RECORD_BURST))


class Listener:
    """Lets clients join."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        device: TunnelDevice,
        gateway: Gateway,
        routing: NetworkRouting,
        peers: Mapping[bytes, Sequence[Network]] | None,
        falls_back: bool,
    ) -> None:
        """Take who may join. Raises TunnelError.

        `peers`: networks by public key; see `AddressPolicy`. `falls_back`: whether packets are taken in plain UDP, too,
        at the next port.
        """
        self._endpoint = endpoint
        self._device = device
        self._gateway = gateway
        self._routing = routing
        self._admission = AddressPolicy(device.addresses, peers=peers)
        self._newest_wins = peers is not None
        self._newcomers: dict[Member, asyncio.TimerHandle] = {}  # that have not said what they want
        self._waiting: set[Member] = set()  # for an address
        self._tasks = Tasks()
        if falls_back:
            host, port = endpoint.address
            routing.encapsulation = Encapsulation.listen(
                (host, port + 1),
                owners=self._owners(peers),
                counters=routing.counters,
                interface=gateway,
                on_learned=self._send_kept,
            )

    def _owners(self, peers: Mapping[bytes, Sequence[Network]] | None) -> Owners:
        """Return which addresses are whose, without SRD: the keys of the peers are their names only."""
        if peers is None:
            return EachAddress(self._device.addresses)
        owners = AllowedAddresses[bytes]()
        for key, networks in peers.items():
            owners.add(key, networks)
        return owners

    async def run(self) -> None:
        """Accept peers until the endpoint is closed. Raises SrdError if it fails."""
        async for peer in self._endpoint:
            if len(self._newcomers) + len(self._waiting) >= MAX_NEWCOMERS:
                self._tasks.start(peer.close())
                continue
            member = self._gateway.add(peer)
            self._newcomers[member] = asyncio.get_running_loop().call_later(
                GREETING_WITHIN_S, self._dismiss, member, "it does not say what it wants"
            )
            peer.attach(member)

    def on_control_untrusted(self, member: Member, message: bytes) -> None:
        """Let a client join, or refuse it. Raises PacketError."""
        wanted = hello_untrusted(message)
        if (timer := self._newcomers.pop(member, None)) is None:
            return  # it has joined, or is being closed
        timer.cancel()
        networks = self._admission.networks_untrusted(member.peer.identity, wanted)
        if isinstance(networks, str):
            self._refuse(member, networks)
            return
        self._waiting.add(member)
        self._tasks.start(self._let_in(member, networks))

    async def _let_in(self, member: Member, networks: Sequence[Network]) -> None:
        """Let a client join once nobody else has its networks, or refuse it."""
        try:
            refused = await self._make_room(networks)
        finally:
            self._waiting.remove(member)
        if refused is not None:
            self._refuse(member, refused)
        elif not member.peer.ended:
            await self._join(member, networks)

    async def _make_room(self, networks: Sequence[Network]) -> str | None:
        """End the sessions that have one of these networks; return why not."""
        while found := self._user_of(networks):
            network, user = found
            if self._newest_wins:
                self._dismiss(user, "its key has connected again")
            elif await self._answers(user):
                return f"{network.network_address} is used by another client"
            elif self._user_of(networks) == found:
                self._dismiss(user, f"it does not answer, and another client wants {network.network_address}")
        return None

    def _user_of(self, networks: Sequence[Network]) -> tuple[Network, Member] | None:
        """Return the first of the networks that a member has, and the member."""
        for network in networks:
            if (user := self._routing.allowed.user(network)) is not None:
                return network, user
        return None

    async def _answers(self, member: Member) -> bool:
        """Whether a member acknowledges a message: the one that it knows, which changes nothing."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await member.peer.send(self._welcome, immediate=CONTROL)
        except (SrdError, TimeoutError):
            return False
        return True

    async def _join(self, member: Member, networks: Sequence[Network]) -> None:
        try:
            self._device.fit_mtu(member.peer.batch_bytes)
        except TunnelError as error:  # the interface is being made again
            self._refuse(member, str(error))
            return
        self._routing.allowed.add(member, networks)
        member.admit()
        self._send_kept()
        _log.info("%s: joined with %s", host_port_text(*member.peer.address), ", ".join(map(str, networks)))
        await send_control(member.peer, self._welcome)
        if not member.peer.ended:
            member.join()

    @property
    def _welcome(self) -> bytes:
        return welcome([each.network for each in self._device.addresses])

    def _refuse(self, member: Member, reason: str) -> None:
        self._gateway.counters.refused += 1
        _log.warning("%s: refused: %s", host_port_text(*member.peer.address), reason)
        self._tasks.start(self._say_and_close(member, refusal(reason)))

    async def _say_and_close(self, member: Member, message: bytes) -> None:
        await send_control(member.peer, message)
        await member.peer.close()

    def _dismiss(self, member: Member, reason: str) -> None:
        self._newcomers.pop(member, None)
        _log.warning("%s: closed: %s", host_port_text(*member.peer.address), reason)
        self._routing.allowed.remove(member)
        self._tasks.start(member.peer.close())

    def on_left(self, member: Member) -> None:
        """Take note of a client's end."""
        if (timer := self._newcomers.pop(member, None)) is not None:
            timer.cancel()
        if member.has_joined:
            _log.info("%s: left: %s", host_port_text(*member.peer.address), member.peer.error())

    def _send_kept(self) -> None:
        self._gateway.send_again(self._routing.take_kept(now=self._gateway.now))

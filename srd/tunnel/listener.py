"""The end of a tunnel that others connect to: a star, whose clients each have addresses of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from srd.endpoint import Endpoint
from srd.io.addresses import host_port_text
from srd.tunnel.allowed import Admission, AllowedAddresses
from srd.tunnel.device import Device
from srd.tunnel.encapsulation import EachAddress, Encapsulation, Owners
from srd.tunnel.gateway import Gateway, send_control
from srd.tunnel.greeting import Address, Network, hello_untrusted, refusal, welcome
from srd.tunnel.member import Member
from srd.tunnel.routing import NetworkRouting

GREETING_WITHIN_S: Final = 5.0
"""How long a peer may take to say what it wants."""
MAX_NEWCOMERS: Final = 256
"""Peers that have not said it; more are closed at once."""

_log: Final = logging.getLogger(__name__)


class Listener:
    """Lets clients join."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        device: Device,
        gateway: Gateway,
        routing: NetworkRouting,
        peers: Mapping[bytes, Sequence[Network]] | None,
        falls_back: bool,
    ) -> None:
        """Take who may join. Raises TunnelError.

        `peers`: networks by public key; see `Admission`. `falls_back`: whether packets are taken in plain UDP, too, at
        the next port.
        """
        self._endpoint = endpoint
        self._device = device
        self._gateway = gateway
        self._routing = routing
        self._admission = Admission(device.addresses, peers=peers, user_of=self._user_of)
        self._newcomers: dict[Member, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
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

    def _user_of(self, address: Address) -> bytes | None:
        member = self._routing.allowed.find(address.packed)
        return None if member is None else member.peer.identity.public_key

    async def run(self) -> None:
        """Accept peers until the endpoint is closed. Raises SrdError if it fails."""
        async for peer in self._endpoint:
            if len(self._newcomers) >= MAX_NEWCOMERS:
                self._later(peer.close())
                continue
            member = self._gateway.add(peer)
            self._newcomers[member] = asyncio.get_running_loop().call_later(
                GREETING_WITHIN_S, self._dismiss, member, "it does not say what it wants"
            )
            member.attach()

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
        for network in networks:
            before = self._routing.allowed.user(network)
            if before is not None and before is not member:
                self._dismiss(before, "its key has connected again")
        self._routing.allowed.add(member, networks)
        self._device.fit_mtu(member.peer.batch_bytes)
        member.join()
        self._send_kept()
        self._later(send_control(member.peer, welcome([each.network for each in self._device.addresses])))
        _log.info("%s: joined with %s", host_port_text(*member.peer.address), ", ".join(map(str, networks)))

    def _refuse(self, member: Member, reason: str) -> None:
        _log.warning("%s: refused: %s", host_port_text(*member.peer.address), reason)
        self._later(self._say_and_close(member, refusal(reason)))

    async def _say_and_close(self, member: Member, message: bytes) -> None:
        await send_control(member.peer, message)
        await member.peer.close()

    def _dismiss(self, member: Member, reason: str) -> None:
        self._newcomers.pop(member, None)
        _log.warning("%s: closed: %s", host_port_text(*member.peer.address), reason)
        self._routing.allowed.remove(member)
        self._later(member.peer.close())

    def on_left(self, member: Member) -> None:
        """Take note of a client's end."""
        if (timer := self._newcomers.pop(member, None)) is not None:
            timer.cancel()
        _log.info("%s: left: %s", host_port_text(*member.peer.address), member.peer.error())

    def _send_kept(self) -> None:
        self._gateway.send_again(self._routing.take_kept(now=self._gateway.now))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

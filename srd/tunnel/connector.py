"""The end of a tunnel that connects, and connects again whenever the other end is lost.

The interface stays meanwhile, so connections inside go on when the other end is back. With a fallback packets take the
way around SRD (`encapsulation`) from `FALL_BACK_AFTER_S` after the beginning of an outage until its end. Meanwhile the
listener is told where this end is, at once and every `KEEP_ALIVE_S`: so a NAT in between keeps its mapping, and the
listener knows when it changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from netns.base.addresses import host_port_text
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.io.syscalls import Address
from srd.names import MAPPED, resolve
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.tunnel.device import TunnelDevice
from srd.tunnel.encapsulation import Encapsulation
from srd.tunnel.errors import TunnelError
from srd.tunnel.gateway import Gateway, send_control
from srd.tunnel.greeting import Network, hello, welcome_untrusted
from srd.tunnel.member import Member
from srd.tunnel.routing import NetworkRouting

GREETING_WITHIN_S: Final = 5.0
"""How long the listener may take to answer."""
RETRY_S: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Pauses between the tries to connect; the last repeats."""
FALL_BACK_AFTER_S: Final = 1.0
"""How long SRD may not answer before packets go around it. A handshake takes two round trips; over a satellite 1.2 s.
In between TCP's newest packets are kept, so that connections do not lose more than this time."""
KEEP_ALIVE_S: Final = 15.0
"""Half of the shortest lifetime of a UDP mapping (Linux': 30 s; RFC 4787, REQ-5 wants 2 minutes), as SRD's own
(`ProtocolConfig.nat_keepalive_s`)."""
LATER: Final = frozenset(
    {
        Status.LOCAL_ERROR_UNRESP_REMOTE,
        Status.LOCAL_ERROR_UNREACH_REMOTE,
        Status.REMOTE_ERROR_UNKNOWN_PEER,
        Status.REMOTE_ERROR_ABORT,
    }
)
"""How the first try may end where a listener may be later; other ends are errors."""

_log: Final = logging.getLogger(__name__)


class Connector:
    """Keeps one peer open."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        target: tuple[str, int, str | None],
        device: TunnelDevice,
        gateway: Gateway,
        routing: NetworkRouting,
        routes: Sequence[Network],
        falls_back: bool,
        on_connected: Callable[[Member], None],
    ) -> None:
        """Take where to connect.

        `target`: host, port and fingerprint; `routes`: networks behind the listener, beside the interface's own;
        `falls_back`: whether packets go in plain UDP to the next port while SRD does not answer; `on_connected` is
        called each time that packets begin to pass.
        """
        self._falls_back = falls_back
        self._around: Encapsulation | None = None
        self._outside: list[Address] = []  # where it may lead
        self._fallback_timer: asyncio.TimerHandle | None = None
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._on_connected = on_connected
        self._endpoint = endpoint
        self._host, self._port, self._fingerprint = target
        self._device = device
        self._gateway = gateway
        self._routing = routing
        self._networks = [*(each.network for each in device.addresses), *routes]
        self._answer: asyncio.Future[str | None] | None = None  # why the listener refuses; None: it does not
        self._left = asyncio.Event()

    @property
    def name(self) -> str:
        """The listener's host and port."""
        return host_port_text(self._host, self._port)

    async def run(self) -> None:
        """Connect, and again, until cancelled. Raises SrdError if the listener refuses, or is another one."""
        if self._falls_back:
            self._outside = [each for _, each in await resolve(self._host, port=self._port + 1, passive=False)]
            self._go_around(self._outside)
            self._keep_alive()
        try:
            await self._run()
        finally:
            self._cancel_fallback()
            if self._keep_alive_timer is not None:
                self._keep_alive_timer.cancel()

    async def _run(self) -> None:
        failures: list[str] = []  # since the last success
        was_connected = False
        while True:
            self._fall_back_later()
            try:
                member = await self._join()
            except SrdError as error:
                if not was_connected and not (isinstance(error, PeerError) and error.status in LATER):
                    raise
                if str(error) not in failures:
                    _log.warning("%s; trying again until it answers", error)
                await asyncio.sleep(RETRY_S[min(len(failures), len(RETRY_S) - 1)])
                failures = [*failures, str(error)][-len(RETRY_S) :]
                continue
            failures, was_connected = [], True
            self._on_connected(member)
            self._return_to_srd()
            self._follow(member.peer)
            await self._left.wait()
            _log.warning("lost %s", member.peer.error())

    def _fall_back_later(self) -> None:
        around = self._around
        if around is not None and not around.is_active and self._fallback_timer is None:
            self._fallback_timer = asyncio.get_running_loop().call_later(FALL_BACK_AFTER_S, self._fall_back, around)

    def _fall_back(self, around: Encapsulation) -> None:
        self._fallback_timer = None
        around.is_active = True
        self._announce(around)
        _log.warning(
            "no SRD peer answers at %s: packets go in plain UDP to %s, unencrypted, until it does",
            self.name,
            around.name,
        )
        self._send_kept()

    def _go_around(self, addresses: Sequence[Address]) -> None:
        """Have packets that go around SRD go to the first of these addresses that there is a route to."""
        found: Encapsulation | None = None
        for address in addresses:
            try:
                found = Encapsulation.connect(
                    address, networks=self._networks, counters=self._routing.counters, interface=self._gateway
                )
            except TunnelError:
                if address == addresses[-1]:
                    raise
            else:
                break
        if self._around is not None:
            self._around.close()
        self._around = self._routing.encapsulation = found

    def _follow(self, peer: Peer) -> None:
        """Have them go where SRD has got an answer, which may be another address of the name."""
        host = peer.address[0].removeprefix(MAPPED)
        answering = [address for address in self._outside if address[0] == host]
        if answering and self._around is not None and self._around.host != host:
            self._go_around(answering)

    def _keep_alive(self) -> None:
        if (around := self._around) is not None and (around.is_active or not self._routing.all_eligible):
            self._announce(around)
        self._keep_alive_timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._keep_alive)

    def _announce(self, around: Encapsulation) -> None:
        around.announce(each.ip for each in self._device.addresses)

    def _return_to_srd(self) -> None:
        self._cancel_fallback()
        if self._around is not None and self._around.is_active:
            self._around.is_active = False
            _log.warning("%s: packets go over SRD again", self.name)

    def _cancel_fallback(self) -> None:
        if self._fallback_timer is not None:
            self._fallback_timer.cancel()
            self._fallback_timer = None

    async def _join(self) -> Member:
        """Connect, and agree on the addresses. Raises SrdError."""
        peer = await self._endpoint.connect(self._host, self._port, fingerprint=self._fingerprint)
        self._left.clear()
        self._answer = asyncio.get_running_loop().create_future()
        member = self._gateway.add(peer)
        peer.attach(member)
        try:
            async with asyncio.timeout(GREETING_WITHIN_S):
                await send_control(peer, hello([each.ip for each in self._device.addresses]))
                refused = await self._answer
        except TimeoutError:
            await peer.close()
            raise PeerError(f"{self.name}: is no srd tunnel", status=Status.LOCAL_ERROR_UNRESP_REMOTE) from None
        except BaseException:
            await peer.close()
            raise
        if refused is not None:
            await peer.close()
            raise TunnelError(f"{self.name}: refuses: {refused}")
        return member

    def on_control_untrusted(self, member: Member, message: bytes) -> None:
        """Take the listener's answer. Raises PacketError."""
        answer = welcome_untrusted(message)
        if self._answer is None or self._answer.done():
            return
        if isinstance(answer, str):
            self._answer.set_result(answer)
            return
        self._routing.allowed.add(member, self._networks)
        self._device.fit_mtu(member.peer.batch_bytes)
        member.join()
        self._send_kept()
        self._answer.set_result(None)

    def _send_kept(self) -> None:
        self._gateway.send_again(self._routing.take_kept(now=self._gateway.now))

    def on_left(self, member: Member) -> None:
        """Take note of the listener's end."""
        self._left.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(member.peer.error())

"""A TCP sender with endless data, and its receiver, on the virtual fabric.

A model, not an implementation: what competes for a queue is how many packets are sent and when, so there is no
handshake, no byte stream and no receive window. Each packet has a number of transmission, each is acknowledged by
itself, and a packet is lost when one that was sent three transmissions later was acknowledged (as with SACK, RFC 6675,
and with QUIC's packet threshold, RFC 9002, which finds lost retransmissions, too). The retransmission timeout is RFC
6298's with Linux' minimum of 0.2 s.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import Packet
from netns.topology.model import ETHERNET_HEADER_BYTES
from scripts.benches.wild.controllers import Acked, TcpController

NS_PER_S: Final = 1_000_000_000
REORDERING_PACKETS: Final = 3
MIN_RTO_S: Final = 0.2
ACK_BYTES: Final = ETHERNET_HEADER_BYTES + 52
"""IPv4, TCP, and its timestamps."""
PORT: Final = 5201


class _Sent(NamedTuple):
    """State at the transmission of a packet."""

    at: float
    delivered: int
    delivered_at: float


class TcpFlow:
    """A sender at one host and the receiver at another; `start` it. `delivered` counts packets, `lost` those lost."""

    def __init__(self, fabric: VirtualFabric, source: str, destination: str, *, controller: TcpController) -> None:
        self.delivered = self.lost = self.sent = 0
        self.controller = controller
        self._fabric = fabric
        ends = fabric.address(source), fabric.address(destination)
        self._forth = fabric.flow(ends[0], source_port=PORT, destination=ends[1], destination_port=PORT)
        self._back = fabric.flow(ends[1], source_port=PORT, destination=ends[0], destination_port=PORT)
        self._packet_bytes = fabric.topology.mtu + ETHERNET_HEADER_BYTES
        self._inflight: dict[int, _Sent] = {}  # by number of transmission, in order
        self._highest = -1  # number of transmission that was acknowledged
        self._recovery_until = -1  # losses of transmissions up to this one belong to the last loss event
        self._round_until = 0  # the round ends when a transmission from this one on is acknowledged
        self._delivered_at = 0.0
        self._srtt_s, self._rttvar_s = 0.0, 0.0
        self._backoff = 0
        self._send_at = 0.0  # pacing
        self._wake_at_ns = 0
        self._timeout_at = math.inf
        fabric.attach(source, self._on_acks)
        fabric.attach(destination, self._on_data)

    def start(self) -> None:
        """Begin to send now."""
        self._delivered_at = self._now
        self._send()

    @property
    def _now(self) -> float:
        return self._fabric.now_ns / NS_PER_S

    def _on_data(self, packets: list[Packet], _now_ns: int) -> None:
        for packet in packets:
            self._fabric.send(self._back, length_bytes=ACK_BYTES, content=packet.content)

    def _on_acks(self, packets: list[Packet], _now_ns: int) -> None:
        for packet in packets:
            self._on_ack(packet.content)
        self._send()

    def _on_ack(self, number: int) -> None:
        sent, now = self._inflight.pop(number, None), self._now
        if sent is None:
            return  # it was taken for lost
        self.delivered += 1
        rtt_s, elapsed_s = now - sent.at, now - sent.delivered_at
        rate = (self.delivered - sent.delivered) / elapsed_s if elapsed_s > 0 else 0.0
        self._delivered_at, self._backoff = now, 0
        self._highest = max(self._highest, number)
        if self._srtt_s:
            self._rttvar_s += (abs(self._srtt_s - rtt_s) - self._rttvar_s) / 4
            self._srtt_s += (rtt_s - self._srtt_s) / 8
        else:
            self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2
        if is_new_round := number >= self._round_until:
            self._round_until = self.sent
        self._detect_losses(now)
        self.controller.on_ack(Acked(now, rtt_s, rate, len(self._inflight), is_new_round))
        self._restart_timer(now)

    def _detect_losses(self, now: float) -> None:
        lost = []
        for number in self._inflight:
            if number > self._highest - REORDERING_PACKETS:
                break
            lost.append(number)
        for number in lost:
            del self._inflight[number]
            self.lost += 1
            if number > self._recovery_until:
                self._recovery_until = self.sent
                self.controller.on_loss(now=now)

    def _restart_timer(self, now: float) -> None:
        rto_s = max(self._srtt_s + 4 * self._rttvar_s, MIN_RTO_S) if self._srtt_s else 1.0
        self._timeout_at = now + rto_s * (1 << min(self._backoff, 6)) if self._inflight else math.inf

    def _send(self) -> None:
        now, rate = self._now, self.controller.pacing_rate
        if not self._inflight:
            self._delivered_at = now
        while len(self._inflight) < int(self.controller.window) and self._send_at <= now + 1e-9:
            self._inflight[self.sent] = _Sent(now, self.delivered, self._delivered_at)
            self._fabric.send(self._forth, length_bytes=self._packet_bytes, content=self.sent)
            self.sent += 1
            self._send_at = max(self._send_at, now) + (0.0 if rate == math.inf else 1 / rate)
            if self._timeout_at == math.inf:
                self._restart_timer(now)
        waits = len(self._inflight) < int(self.controller.window)
        self._wake_by(min(self._timeout_at, self._send_at if waits else math.inf))

    def _wake_by(self, at: float) -> None:
        if at < math.inf:
            at_ns = max(math.ceil(at * NS_PER_S), self._fabric.now_ns + 1)
            if not self._fabric.now_ns < self._wake_at_ns <= at_ns:
                self._wake_at_ns = at_ns
                self._fabric.at(at_ns, self._wake)

    def _wake(self, now_ns: int) -> None:
        if now_ns != self._wake_at_ns:
            return
        if self._now >= self._timeout_at:
            self.lost += len(self._inflight)
            self._inflight.clear()
            self._recovery_until = self.sent
            self._backoff += 1
            self._timeout_at = math.inf
            self.controller.on_timeout()
        self._send()

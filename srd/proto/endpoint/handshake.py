"""Opening a peer: a cookie before any state, and a datagram size that the network was shown to carry (PROTOCOL.md, 3).

1. A sender that returns the cookie receives at its address (as in DTLS 1.3 and QUIC Retry). A cookie opens one peer: a
   HELLO that is replayed after that peer has ended opens none.
2. HELLO and RETRY are sent with "do not fragment" and padded: a RETRY that arrives shows that datagrams of that size
   pass in both directions. Each HELLO goes over another path until one is answered, and the answers over as many
   others, since single links may be dead or have a smaller MTU.
3. A repeated HELLO gets the same ACCEPT, so both ends use one size. The initiator believes no size above what
   it has proposed.
4. With a `Security` nothing costs the responder a public-key operation before the cookie is valid. An answer that is
   not authentic, or has a wrong credential, may be anybody's: it is ignored, and named when the attempt ends.
5. A NAT on the way shows in the digest of the initiator's address; all answers are then sent from the address that it
   has contacted, the only one that a NAT admits.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from srd.proto.base.errors import PacketError
from srd.proto.base.security import CredentialCheck, Initiation, Secured, Security, SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.wire.control import Accept, Hello, Refuse, Retry, SecureAccept, accept_untrusted
from srd.proto.wire.data import MIN_DATAGRAM_BYTES, Address, host_of
from srd.proto.wire.status import RefuseReason, Status

COOKIE_LIFETIME_S: Final = 10
"""A cookie is valid for this long, and up to twice: a slow initiator's retries, and no more."""
COOKIE_BYTES: Final = 24
"""Eight bytes of time and sixteen of MAC."""
HELLOS_PER_SIZE: Final = 4
"""Unanswered HELLOs of one size, each over another path, before a smaller one is tried: if one of four links were too
narrow for it, all four HELLOs would take that link one time in 256. It costs 0.2 s where no link carries the size."""


HELLOS_PER_INTERVAL: Final = 20
"""HELLOs after which the interval between them doubles: for the first second a lost HELLO costs 50 ms, so that a short
fabric opens its peers quickly; a host that is not there is not sent hundreds."""
MAX_HELLO_INTERVAL_S: Final = 0.4
"""Longest interval: a HELLO that is lost late in an attempt of 10 s costs a twenty-fifth of it."""
FAILED_S: Final = 1.0
"""Least time that an attempt goes on after an answer that it cannot use, or as long as it took until then: anybody may
send one, so an honest answer may follow; but the user does not wait for the reason until the end of the attempt."""
MAX_SIZES: Final = 8
"""Sizes that an attempt tries: three of its own, and what several routers said; anybody may forge what they say."""
MAX_USED_COOKIES: Final = 1 << 16
"""Cookies that are remembered as used: more handshakes than an interpreter makes while a cookie is valid. When there
are as many, further handshakes are refused."""
MAX_USED_OF_HOST: Final = MAX_USED_COOKIES // 4
"""The same for one host, in either period: 1,600 handshakes a second. As `max_peers_per_address`: a single host cannot
take all places."""


class CookieJar:
    """Makes cookies without storing any; remembers used ones for as long as they would be valid."""

    def __init__(self, *, secret: bytes) -> None:
        self._secret = secret
        self._used: dict[int, set[bytes]] = {}  # by the period of their time stamp
        self._hosts: dict[int, dict[object, int]] = {}  # likewise: how many each host has used
        self.used_count = 0

    def spend(self, cookie: bytes, *, address: Address, now: float) -> bool:
        """Note that a valid cookie was used; return whether it had been before. `is_full`: no room."""
        self._drop_expired(now)
        period, host = int.from_bytes(cookie[:8], "big"), host_of(address)
        used, hosts = self._used.setdefault(period, set()), self._hosts.setdefault(period, {})
        if cookie in used:
            return True
        used.add(cookie)
        hosts[host] = hosts.get(host, 0) + 1
        self.used_count += 1
        return False

    def is_full(self, address: Address, *, now: float) -> bool:
        """Whether no further cookie of this host can be remembered, and so none be accepted."""
        self._drop_expired(now)
        host = host_of(address)
        of_host = any(hosts.get(host, 0) >= MAX_USED_OF_HOST for hosts in self._hosts.values())
        return of_host or self.used_count >= MAX_USED_COOKIES

    def _drop_expired(self, now: float) -> None:
        oldest = int(now / COOKIE_LIFETIME_S) - 1
        for period in [period for period in self._used if period < oldest]:
            self.used_count -= len(self._used.pop(period))
            del self._hosts[period]

    def make(self, *, address: Address, context: int, now: float) -> bytes:
        """Return the cookie for an initiator at `address`."""
        return self._cookie(int(now / COOKIE_LIFETIME_S), address=address, context=context)

    def check(self, cookie: bytes, *, address: Address, context: int, now: float) -> bool:
        """Whether `cookie` was made here, for this initiator, and has not expired."""
        age = int(now / COOKIE_LIFETIME_S) - int.from_bytes(cookie[:8], "big")
        if len(cookie) != COOKIE_BYTES or not 0 <= age <= 1:
            return False
        expected = self._cookie(int.from_bytes(cookie[:8], "big"), address=address, context=context)
        return hmac.compare_digest(cookie, expected)

    def _cookie(self, period: int, *, address: Address, context: int) -> bytes:
        text = period.to_bytes(8, "big")
        bound = text + context.to_bytes(8, "big") + repr(address).encode()
        return text + hmac.new(self._secret, bound, hashlib.sha256).digest()[: COOKIE_BYTES - 8]


def source_digest(address: Address, *, context: int) -> int:
    """Return 64 bits that tell whether two ends know the same source address of a HELLO, without naming it (RFC 7296).

    The scope of an IPv6 address is each host's own, and is left out; so is what makes an IPv4 address an IPv6 one.
    """
    host, port = address[:2] if isinstance(address, tuple) else str(address).rpartition(":")[::2]
    text = f"{context:x} {host.removeprefix('::ffff:')} {port}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") or 1


def is_translated(hello: Hello, address: Address) -> bool:
    """Whether a HELLO from `address` left from another one, so that a NAT is on the way; not if that is not known."""
    return hello.source_digest not in (0, source_digest(address, context=hello.own_context))


_REASONS: dict[int, str] = {
    RefuseReason.NEEDS_PLAIN: "the other end speaks plain text only",
    RefuseReason.NEEDS_PSK: "the other end wants a symmetric key (psk)",
    RefuseReason.NEEDS_KEYS: "the other end wants encryption by public keys",
    RefuseReason.NEEDS_CERT: "the other end wants encryption by certificates",
    RefuseReason.NOT_AUTHORIZED: "the other end does not accept this end's key or certificate",
    RefuseReason.TOO_SMALL: "the other end's certificate does not fit into datagrams of this size",
}
_REASON_STATUSES: Final = (Status.REMOTE_ERROR_FEATURE_MISMATCH, Status.REMOTE_ERROR_BAD_DEST_QPN)


def refusal_of(refuse: Refuse) -> tuple[Status, str]:
    """Return the status with which a refused peer ends, and the reason."""
    if (reason := _REASONS.get(refuse.reason)) is not None:
        status = Status(refuse.status) if refuse.status in _REASON_STATUSES else Status.REMOTE_ERROR_ABORT
        return status, f"refused: {reason}"
    if refuse.status == Status.REMOTE_ERROR_FEATURE_MISMATCH:
        return Status.REMOTE_ERROR_FEATURE_MISMATCH, "the other end has another version of the protocol"
    if refuse.status == Status.REMOTE_ERROR_BAD_DEST_QPN:
        return Status.REMOTE_ERROR_BAD_DEST_QPN, "refused: the other end takes no peers"
    if refuse.status == Status.REMOTE_ERROR_RNR:
        return Status.REMOTE_ERROR_RNR, "refused: the other end has no room for more peers"
    return Status.REMOTE_ERROR_ABORT, f"refused (status {refuse.status})"


def accept(hello: Hello, address: Address, *, context: int, config: ProtocolConfig, datagram_bytes: int) -> Accept:
    """Return the ACCEPT that answers a HELLO from `address`; `datagram_bytes` is the largest that this end receives."""
    return Accept(
        hello.own_context,
        context,
        config.receive_window_bytes,
        config.receive_window_messages,
        config.max_message_bytes,
        config.window_packets,
        min(hello.datagram_bytes, datagram_bytes),
        int(is_translated(hello, address)),
    )


MAX_INITIATIONS: Final = 2 * MAX_SIZES
"""Handshakes that an ACCEPT may answer: of the sizes that are tried, with one cookie and the next."""
MIN_RTT_S: Final = 1e-6
"""Smallest round trip, as for a path's samples: the pacing rate divides by it, and the clock may not have advanced."""


class PeerOpening:
    """A peer that this end opens: what to send next, and when the attempt ends."""

    def __init__(
        self,
        number: int,
        *,
        address: Address,
        own_context: int,
        config: ProtocolConfig,
        sizes: tuple[int, ...],
        sources: Sequence[Address] = (),
        security: Security | None = None,
        check_credential: CredentialCheck | None = None,
        now: float,
    ) -> None:
        self.number = number
        self.address = address
        self.own_context = own_context
        self.failure = ""  # why an answer was ignored, if one was
        self._security = security
        self._mode = SecurityMode.PLAIN if security is None else security.mode
        self._check_credential = check_credential
        self._credential = b""  # the responder's
        self._initiations: dict[tuple[bytes, int], Initiation] = {}  # by cookie and size proposed, the oldest first
        self._config = config
        self._sizes = sizes
        self._sources = sources  # the addresses of this end's paths, if they are known
        self._cookie = b""
        self._is_answered = False  # whether a RETRY was processed
        self._path = 0  # with a cookie: the path that it came over, since it is valid for that address only
        self._hellos = 0  # unanswered; they determine the size
        self._proposed_bytes = 0  # largest size of a HELLO that opens a peer
        self._repeats = 0  # all of this attempt; they determine the interval
        self._sent_at: float | None = None  # when the unanswered HELLO was sent; infinite: it was repeated
        self._started_at = self._asked_at = now  # the latter: when the first HELLO with the present cookie was sent
        self._retry_after_s = math.inf  # time until the first RETRY
        self.send_at = now
        self.give_up_at = now + config.handshake_timeout_s

    def retry(self, retry: Retry, *, now: float) -> None:
        """Process a RETRY: send the HELLO again, with its cookie, over the path that was answered.

        The first RETRY is answered at once, any other when the next HELLO is due: it may be anybody's. The size is the
        one proposed last, or that of the RETRY, if it is one of the proposed sizes and larger, since it passed.
        """
        if retry.cookie == self._cookie or (self._cookie and retry.path != self._path):
            return
        if retry.path >= self._config.paths:
            return  # not a path of this end
        if self._security is not None:
            if self._check_credential is not None and (reason := self._check_credential(retry.credential)) is not None:
                self._on_failure(reason, now=now)
                return
            self._credential = retry.credential
        self._cookie, self._path = retry.cookie, retry.path
        self._sent_at = None
        self._retry_after_s = min(self._retry_after_s, now - self._asked_at)
        self._asked_at = now
        passed = self._sizes.index(retry.size_bytes) if retry.size_bytes in self._sizes else len(self._sizes)
        self._hellos = min(max(self._hellos - 1, 0) // HELLOS_PER_SIZE, passed) * HELLOS_PER_SIZE
        if not self._is_answered:
            self._is_answered, self.send_at = True, now

    def add_size(self, size_bytes: int) -> None:
        """Try datagrams of this size, too: ICMP reports that larger ones do not pass a link. It may be forged."""
        if size_bytes in self._sizes or not MIN_DATAGRAM_BYTES <= size_bytes < self._sizes[0]:
            return
        if len(self._sizes) < MAX_SIZES:
            self._sizes = tuple(sorted((*self._sizes, size_bytes), reverse=True))
            self._hellos = min(self._hellos, self._sizes.index(size_bytes) * HELLOS_PER_SIZE)

    def poll_hello(self, *, now: float) -> Hello | None:
        """Return the HELLO that is due."""
        if now < self.send_at:
            return None
        config, size = self._config, self._sizes[min(self._hellos // HELLOS_PER_SIZE, len(self._sizes) - 1)]
        path = self._path if self._cookie else self._hellos % config.paths
        self._hellos += 1
        if self._cookie:
            self._proposed_bytes = max(self._proposed_bytes, size)
        self._sent_at = now if self._sent_at is None else math.inf
        interval_s = config.initial_rtt_s * (1 << min(self._repeats // HELLOS_PER_INTERVAL, 16))
        self.send_at = now + max(min(interval_s, MAX_HELLO_INTERVAL_S), config.initial_rtt_s)
        self._repeats += 1
        hello = Hello(
            self.own_context,
            config.receive_window_bytes,
            config.receive_window_messages,
            config.max_message_bytes,
            config.window_packets,
            size,
            self._cookie,
            path,
            self._mode,
            source_digest=source_digest(self._sources[path], context=self.own_context) if self._sources else 0,
            paths=config.paths,
        )
        return (
            hello if self._security is None or not self._credential else self._secured(hello, self._security, now=now)
        )

    def _on_failure(self, reason: str, *, now: float) -> None:
        """Note why an answer is ignored; end the attempt soon."""
        self.failure = reason
        self.give_up_at = min(self.give_up_at, now + max(FAILED_S, now - self._started_at))

    def _secured(self, hello: Hello, security: Security, *, now: float) -> Hello | None:
        """Return a HELLO with its handshake message, or None if the responder's answer was invalid: then ask again."""
        try:
            return self._secured_untrusted(hello, security)
        except PacketError as error:
            self._on_failure(str(error), now=now)
            self._cookie = self._credential = b""
            return None

    def _secured_untrusted(self, hello: Hello, security: Security) -> Hello:
        """Return a HELLO with its handshake message: one for each cookie and size, as its content is bound to it."""
        key = (hello.cookie, hello.datagram_bytes)
        initiation = self._initiations.get(key)
        if initiation is None:
            initiation = security.initiate_untrusted(
                self._credential, transcript=hello.transcript, context=self.own_context
            )
            if len(self._initiations) >= MAX_INITIATIONS:
                del self._initiations[next(iter(self._initiations))]
            self._initiations[key] = initiation
        secured = replace(hello, message=initiation.message)
        if len(secured.encode()) > hello.datagram_bytes:
            raise PacketError(f"this end's certificate does not fit into {hello.datagram_bytes} bytes")
        return secured

    def accepted_untrusted(self, packet: Accept | SecureAccept, *, now: float) -> tuple[Accept, Secured | None]:
        """Complete the handshake that an ACCEPT answers. Raises PacketError if it answers none."""
        accepted, secured = (packet, None) if isinstance(packet, Accept) else self._secured_accept(packet, now=now)
        if accepted.datagram_bytes > self._proposed_bytes:
            raise PacketError(f"an accept for {accepted.datagram_bytes} bytes, more than was proposed")
        return accepted, secured

    def _secured_accept(self, packet: SecureAccept, *, now: float) -> tuple[Accept, Secured]:
        for initiation in self._initiations.values():
            try:
                secured = initiation.read_untrusted(packet.message, now=now)
            except PacketError:
                continue
            return accept_untrusted(packet.context, secured.payload), secured
        self._on_failure(
            "the answer is not authentic: is the symmetric key, or the public key, another one there?", now=now
        )
        raise PacketError("an accept is not authentic")

    def round_trip_s(self, *, now: float) -> float | None:
        """Return the round trip of the HELLO whose answer has just arrived.

        None if the HELLO was repeated, since it is not known which one was answered (Karn's rule, RFC 6298).
        """
        return None if self._sent_at is None or self._sent_at > now else max(now - self._sent_at, MIN_RTT_S)

    def max_round_trip_s(self, *, now: float) -> float:
        """Return the longest that the round trip can be, when the ACCEPT has just arrived.

        The RETRY and the ACCEPT each took at least one, and longer where HELLOs or answers were lost.
        """
        return min(now - self._asked_at, self._retry_after_s)

    @property
    def wake_at(self) -> float:
        """When to check again."""
        return min(self.send_at, self.give_up_at)

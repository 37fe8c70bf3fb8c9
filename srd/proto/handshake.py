"""Opening a peer: a cookie before any state, and a datagram size that the network was seen to carry.

    initiator                                responder
    HELLO (padded to the size it proposes) -->            nothing stored; the answer is smaller than the question
                                     <-- RETRY (cookie)
    HELLO (with the cookie)  -->                          the address is real: the peer is made
                                     <-- ACCEPT (context, datagram size, credit)

1. The cookie is a MAC over the initiator's address and context and a coarse time, under a key that only this endpoint
   knows: whoever returns it receives at that address (as DTLS 1.3 and QUIC Retry do it).
2. HELLO is sent with "do not fragment" and padded: when it is answered, datagrams of that size pass. The initiator
   proposes the largest size first and goes to a smaller one after two silences.
3. A HELLO whose peer exists is answered with the same ACCEPT again.
"""

from __future__ import annotations

import hashlib
import hmac

from srd.proto.control import Hello
from srd.proto.wire import Address

COOKIE_LIFETIME_S = 10
"""A cookie is good for this long, and up to twice: a slow initiator's retries, and no more."""
COOKIE_BYTES = 24
"""Eight bytes of time and sixteen of MAC."""
HELLOS_PER_SIZE = 2
"""Unanswered HELLOs of one size before a smaller one is tried."""


class CookieJar:
    """Makes and checks cookies without keeping any."""

    def __init__(self, *, secret: bytes) -> None:
        self._secret = secret

    def make(self, *, address: Address, context: int, now: float) -> bytes:
        """Return the cookie for an initiator at `address`."""
        return self._cookie(int(now / COOKIE_LIFETIME_S), address=address, context=context)

    def check(self, cookie: bytes, *, address: Address, context: int, now: float) -> bool:
        """Whether `cookie` is ours, for this initiator, and young enough."""
        age = int(now / COOKIE_LIFETIME_S) - int.from_bytes(cookie[:8], "big")
        if len(cookie) != COOKIE_BYTES or not 0 <= age <= 1:
            return False
        expected = self._cookie(int.from_bytes(cookie[:8], "big"), address=address, context=context)
        return hmac.compare_digest(cookie, expected)

    def _cookie(self, period: int, *, address: Address, context: int) -> bytes:
        text = period.to_bytes(8, "big")
        bound = text + context.to_bytes(8, "big") + repr(address).encode()
        return text + hmac.new(self._secret, bound, hashlib.sha256).digest()[: COOKIE_BYTES - 8]


class Initiator:
    """The state of an opening peer on the side that asked: what to send next, and when to give up."""

    def __init__(
        self,
        *,
        own_context: int,
        credit_bytes: int,
        max_message_bytes: int,
        sizes: tuple[int, ...],
        now: float,
        interval_s: float,
        timeout_s: float,
    ) -> None:
        self._own_context = own_context
        self._credit_bytes = credit_bytes
        self._max_message_bytes = max_message_bytes
        self._sizes = sizes
        self._interval_s = interval_s
        self._cookie = b""
        self._hellos = 0
        self.send_at = now
        self.give_up_at = now + timeout_s

    def retry(self, cookie: bytes, *, now: float) -> None:
        """Take the responder's cookie: ask again at once, with it, and at the size that was just answered."""
        if cookie != self._cookie:
            self._cookie = cookie
            self._hellos = max(self._hellos - 1, 0) // HELLOS_PER_SIZE * HELLOS_PER_SIZE
            self.send_at = now

    def poll_hello(self, *, now: float) -> bytes | None:
        """Return the HELLO that is due."""
        if now < self.send_at:
            return None
        size = self._sizes[min(self._hellos // HELLOS_PER_SIZE, len(self._sizes) - 1)]
        self._hellos += 1
        self.send_at = now + self._interval_s
        return Hello(self._own_context, self._credit_bytes, self._max_message_bytes, size, self._cookie).encode()

    @property
    def wake_at(self) -> float:
        """When to look again."""
        return min(self.send_at, self.give_up_at)

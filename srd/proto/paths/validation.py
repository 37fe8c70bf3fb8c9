"""Whether the other end receives at an address that its packets come from (RFC 9000, sections 8.1 and 8.2).

Whoever forges source addresses would else have a peer's answers sent to a victim, and they are longer than what they
answer.

1. `home` is valid: the address that returned a cookie, or that this end connected to. So is one that is valid for
   another path.
2. To any other goes no more than three times what came from it, until it has returned a token that cannot be guessed:
   PATH_CHALLENGE and PATH_RESPONSE.
3. A challenge goes out with the first packet, and again, with back-off, for as long as packets come. There is no timer:
   where nothing comes from nothing needs to be sent.
4. A path whose packets come from another address begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from srd.proto.wire.control import PathChallenge
from srd.proto.wire.data import Address

AMPLIFICATION = 3
"""RFC 9000, section 8.1."""
CHALLENGE_INTERVAL_S = 0.05
"""From the first challenge of an address to the second; doubled each time, five times. As HELLOs are repeated."""
CHALLENGE_DOUBLINGS = 5


@dataclass(slots=True)
class RemoteAddress:
    """An address that packets of one peer come from."""

    address: Address
    validated: bool
    received_bytes: int = 0
    """While it is not validated; and so are the following."""
    sent_bytes: int = 0
    token: int = 0
    challenges: int = 0
    challenge_at: float = 0.0
    """When it may be challenged again."""

    def admits(self, size_bytes: int) -> bool:
        """Whether so much may be sent there."""
        return self.validated or self.sent_bytes + size_bytes <= AMPLIFICATION * self.received_bytes

    def validate(self, token: int) -> None:
        """Take the token of a response that came from there; a wrong one changes nothing."""
        if self.challenges and token == self.token:
            self.validated = True


class AddressValidation:
    """Of one peer's packets: `source` finds or makes one, `heard` counts, `poll` gives the next challenge."""

    __slots__ = ("_due", "_home", "_new_token", "_paths")

    def __init__(self, home: Address, *, paths: int, new_token: Callable[[], int]) -> None:
        """Take the address that is valid from the beginning, how many paths this end has, and a source of tokens."""
        self._home = home
        self._paths = paths
        self._new_token = new_token
        self._due: dict[
            int, RemoteAddress
        ] = {}  # by path of the peer's: not validated, and heard since its last challenge

    @property
    def home(self) -> Address:
        """The address that is valid from the beginning."""
        return self._home

    def source(self, address: Address, *, known: Iterable[RemoteAddress]) -> RemoteAddress:
        """Return the source with this address: one of the `known`, or a new one."""
        for source in known:
            if source.address == address:
                return source
        return RemoteAddress(address, address == self._home)

    def on_packet(self, path: int, source: RemoteAddress, *, size_bytes: int) -> None:
        """Note what came over a path from a source that is not validated."""
        source.received_bytes += size_bytes
        self._due[path] = source

    @property
    def due(self) -> bool:
        """Whether `poll` may have a challenge."""
        return bool(self._due)

    def poll(self, *, context: int, now: float) -> tuple[PathChallenge, Address, int] | None:
        """Return the next challenge, the address to send it to, and our path to send it from: each time another."""
        while self._due:
            path, source = self._due.popitem()
            if source.validated or now < source.challenge_at:
                continue
            if not source.challenges:
                source.token = self._new_token()
            challenge = PathChallenge(context, source.token, path)
            size_bytes = len(challenge.encode())
            if not source.admits(size_bytes):
                continue
            source.sent_bytes += size_bytes
            own_path = (path + source.challenges) % self._paths
            source.challenge_at = now + CHALLENGE_INTERVAL_S * (1 << min(source.challenges, CHALLENGE_DOUBLINGS))
            source.challenges += 1
            return challenge, source.address, own_path
        return None

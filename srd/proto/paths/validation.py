"""Address validation: whether the peer receives at an address that its packets come from (PROTOCOL.md, section 5).

Without it, a sender that forges source addresses could direct a peer's answers, which are longer than the packets that
they answer, at a victim (RFC 9000, 8.1 and 8.2).

1. A challenge has no timer: where no packets arrive, none need be sent.
2. An address of another host is kept, and moves nothing until the handshake address has not answered for some time
   (`endpoint.keepalive`). So whoever only sends copies of a peer's packets from an address of his own, however soon,
   does not get what is sent to the peer (RFC 9000, 9.3.3).
3. Towards an initiator behind a NAT (`on_nat`) ports of the destination take the place of ports of the source in the
   hash that selects a link. A mapping that was replaced shows as another address of a path; once it is valid it is the
   handshake address, too: the old one may have been replaced. Packets with a forged source address move nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from srd.proto.wire.control import PathChallenge
from srd.proto.wire.data import Address, host_of

AMPLIFICATION: Final = 3
"""RFC 9000, section 8.1."""
CHALLENGE_INTERVAL_S: Final = 0.05
"""Time between the first and the second challenge of an address, as between HELLOs; doubled up to `CHALLENGE_DOUBLINGS`
times."""
CHALLENGE_DOUBLINGS: Final = 5


@dataclass(slots=True)
class RemoteAddress:
    """An address that packets of one peer come from."""

    address: Address
    validated: bool
    received_bytes: int = 0
    """Counted while the address is not validated, as are the fields below."""
    sent_bytes: int = 0
    token: int = 0
    challenges: int = 0
    challenge_at: float = 0.0
    """Earliest time of the next challenge."""

    def admits(self, size_bytes: int) -> bool:
        """Whether that many bytes may be sent to it."""
        return self.validated or self.sent_bytes + size_bytes <= AMPLIFICATION * self.received_bytes

    def validate(self, token: int) -> bool:
        """Process the token of a response from this address; return whether it is right. Else nothing changes."""
        if not self.challenges or token != self.token:
            return False
        self.validated = True
        return True


class AddressValidation:
    """Addresses of one peer: `on_packets` notes where they come from, `poll` returns the next challenge.

    `destination` is where all packets but acks and challenges are sent; acks go where `spend` admits them.
    """

    __slots__ = (
        "_by_path", "_due", "_has_unvalidated", "_may_move", "_new_token", "_paths", "_remote_paths",
        "handshake_address", "other_address", "sources",
    )  # fmt: skip

    def __init__(
        self, handshake_address: Address, *, paths: int, may_move: bool = True, new_token: Callable[[], int]
    ) -> None:
        """Take the address that is valid from the start, the number of paths of this end, and a source of tokens.

        `may_move`: see `ProtocolConfig`.
        """
        self.handshake_address = handshake_address
        """A valid address: at first the one that returned a cookie, or that this end connected to."""
        self.other_address: Address | None = None
        """One of another host that is valid, too, if packets of a path come from there; see `move`."""
        self.sources: dict[int, RemoteAddress] = {}
        """Where packets of each path of the peer come from."""
        self._has_unvalidated = False  # whether one of these may not be validated
        self._may_move = may_move
        self._paths = paths
        self._new_token = new_token
        self._remote_paths = 0  # primary paths of a peer behind a NAT
        self._by_path: dict[int, Address] | None = None  # of these, the last valid address of each
        # By path of the peer: not validated, and received from since its last challenge.
        self._due: dict[int, RemoteAddress] | None = None

    def on_nat(self, path: int, *, remote_paths: int) -> None:
        """Note that the peer, which has so many primary paths and sent its HELLO over `path`, is behind a NAT."""
        self._remote_paths, self._paths = remote_paths, 1
        self._by_path = {path: self.handshake_address}

    @property
    def behind_nat(self) -> bool:
        """Whether the peer is behind a NAT."""
        return self._remote_paths > 0

    def destination(self, path: int) -> tuple[Address, int]:
        """Return where packets of a path of this end are sent, and the path whose port they are sent from."""
        if self._by_path is None:
            return self.handshake_address, path
        return self._by_path.get(path % self._remote_paths, self.handshake_address), 0

    def leads_to(self, path: int, *, remote_path: int) -> bool:
        """Whether a path of this end leads to the address of that path of a peer behind a NAT."""
        return self._remote_paths > 0 and path % self._remote_paths == remote_path

    def on_valid(self, path: int, address: Address) -> None:
        """Note that packets of a path of the peer come from an address that is valid."""
        if self._by_path is None:
            self._note_host(path, address)
            return
        if self._by_path.get(path) == address:
            return
        if path in self._by_path:
            self.handshake_address = address
        self._by_path[path] = address

    def _note_host(self, path: int, address: Address) -> None:
        """Keep the address if the peer may have moved there; best that of path 0, the port that a firewall opens."""
        host, other = host_of(address), self.other_address
        if host == host_of(self.handshake_address):
            self.other_address = None
        elif self._may_move and (other is None or not path or host_of(other) != host):
            self.other_address = address

    def move(self) -> bool:
        """Go on at the `other_address`; return whether there is one."""
        if self.other_address is None:
            return False
        self.handshake_address, self.other_address = self.other_address, None
        return True

    def on_packets(self, path: int, address: Address, *, is_newest: bool, size_bytes: int) -> None:
        """Note packets that arrived over a path of the peer; only the newest packet changes the path's address."""
        source = self.sources.get(path)
        if source is None or (is_newest and address != source.address):
            source = self.sources[path] = self._source(address)
            if source.validated:
                self.on_valid(path, address)
        if not source.validated and address == source.address:
            source.received_bytes += size_bytes
            if self._due is None:
                self._due = {}
            self._due[path] = source
            self._has_unvalidated = True

    def _source(self, address: Address) -> RemoteAddress:
        """Return the record of this address: that of another path, or a new one."""
        for source in self.sources.values():
            if source.address == address:
                return source
        return RemoteAddress(address, address == self.handshake_address)

    def on_response(self, path: int, *, token: int, address: Address) -> bool:
        """Process the answer to a challenge; return whether it is right. It counts only from the challenged address."""
        source = self.sources.get(path)
        if source is None or source.address != address or not source.validate(token):
            return False
        self.on_valid(path, address)
        return True

    def admitted(self, paths: list[int], *, size_bytes: int) -> list[int]:
        """Return those of these paths whose address may be sent so many bytes; if none may, all paths that may."""
        if not self._has_unvalidated:
            return paths
        self._has_unvalidated = not all(source.validated for source in self.sources.values())
        admitted = [path for path in paths if self.sources[path].admits(size_bytes)]
        return admitted or [path for path, source in self.sources.items() if source.admits(size_bytes)]

    def spend(self, path: int, *, size_bytes: int) -> Address | None:
        """Return the address of a path of the peer, which is sent so many bytes; None: it may not be."""
        source = self.sources.get(path)
        if source is None or not source.admits(size_bytes):
            return None
        if not source.validated:
            source.sent_bytes += size_bytes
        return source.address

    @property
    def due(self) -> bool:
        """Whether `poll` may have a challenge."""
        return bool(self._due)

    def poll(self, *, context: int, overhead_bytes: int, now: float) -> tuple[PathChallenge, Address, int] | None:
        """Return the next challenge, its destination address, and the path to send it from, another each time.

        `overhead_bytes`: what protection adds to it.
        """
        while self._due:
            path, source = self._due.popitem()
            if source.validated or now < source.challenge_at:
                continue
            if not source.challenges:
                source.token = self._new_token()
            challenge = PathChallenge(context, source.token, path)
            size_bytes = len(challenge.encode()) + overhead_bytes
            if not source.admits(size_bytes):
                continue
            source.sent_bytes += size_bytes
            own_path = (path + source.challenges) % self._paths
            source.challenge_at = now + CHALLENGE_INTERVAL_S * (1 << min(source.challenges, CHALLENGE_DOUBLINGS))
            source.challenges += 1
            return challenge, source.address, own_path
        return None

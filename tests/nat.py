"""A network address translator in user space, sans-I/O: mappings, their lifetime, and the filter (RFC 4787)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field


@dataclass
class Mapping:
    """An inside address as the outside sees it."""

    inside: Hashable
    external: Hashable
    used_at: float
    remotes: set[Hashable] = field(default_factory=set)
    """Where packets have left to: the filter admits packets from there only."""


@dataclass
class Nat:
    """`outbound` and `inbound` translate a packet's inside address; `rebind` forgets mappings.

    By default both mapping and filter depend on the remote address and port, as with Linux' masquerading.
    """

    new_external: Callable[[], Hashable]
    lifetime_s: float = 30.0
    """How long a mapping is kept through which nothing leaves."""
    maps_by_remote: bool = True
    """Whether an inside address has another mapping for each remote address."""
    filters: bool = True
    """Whether packets are dropped that come from where none has left to."""
    dropped: int = 0
    """Packets from outside that no mapping, or its filter, has admitted."""
    made: int = 0
    """Mappings in all."""
    _by_inside: dict[tuple[Hashable, Hashable], Mapping] = field(default_factory=dict)
    _by_external: dict[Hashable, Mapping] = field(default_factory=dict)

    def outbound(self, inside: Hashable, remote: Hashable, *, now: float) -> Hashable:
        """Return the external address of a packet that leaves."""
        self._expire(now)
        key = (inside, remote if self.maps_by_remote else None)
        mapping = self._by_inside.get(key)
        if mapping is None:
            self.made += 1
            mapping = self._by_inside[key] = Mapping(inside, self.new_external(), now)
            self._by_external[mapping.external] = mapping
        mapping.used_at = now
        mapping.remotes.add(remote)
        return mapping.external

    def inbound(self, external: Hashable, remote: Hashable, *, now: float) -> Hashable | None:
        """Return the inside address of a packet that comes from outside; None: it is dropped."""
        self._expire(now)
        mapping = self._by_external.get(external)
        if mapping is None or (self.filters and remote not in mapping.remotes):
            self.dropped += 1
            return None
        return mapping.inside

    def rebind(self, *insides: Hashable) -> None:
        """Forget the mappings of these inside addresses; without any: all, as a NAT that was restarted."""
        self._forget(lambda mapping: not insides or mapping.inside in insides)

    @property
    def externals(self) -> set[Hashable]:
        """External addresses in use."""
        return set(self._by_external)

    def _expire(self, now: float) -> None:
        self._forget(lambda mapping: now - mapping.used_at > self.lifetime_s)

    def _forget(self, is_gone: Callable[[Mapping], bool]) -> None:
        gone = [key for key, mapping in self._by_inside.items() if is_gone(mapping)]
        for key in gone:
            del self._by_external[self._by_inside.pop(key).external]

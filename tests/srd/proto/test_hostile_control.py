"""Random well-formed control packets, back to back, with contexts of open peers: no error, and events in order."""

from __future__ import annotations

from random import Random

import pytest

from srd.proto.base.errors import UsageError
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.handshake import CookieJar
from srd.proto.endpoint.peer import PeerCore
from srd.proto.endpoint.peer_state import PeerState
from srd.proto.events import Event, PeerEnded, PeerOpened
from srd.proto.wire.control import (
    Accept,
    Ack,
    Close,
    Closed,
    Control,
    Nack,
    PathChallenge,
    PathReport,
    PathResponse,
    Probe,
    Pull,
    PullRequest,
    Refuse,
    Reset,
    Retry,
)
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, Node
from tests.srd.proto.byhand import data_packet, hello

CONFIG = ProtocolConfig(paths=4, max_peers=12, max_peers_per_address=6, max_unaccepted_peers=8)
STEPS = 150
BATCH = 8
HOSTS = ("x", "y", "b")


class Hostile:
    """An attacker with every context of a node and its cookie key."""

    def __init__(self, network: Network, *, seed: int) -> None:
        self.network = network
        self.node = network.a
        self.rng = Random(seed)
        self.jar = CookieJar(secret=b"a" * 16)
        self.contexts = [0, 1, 2**64 - 1]

    def address(self) -> str:
        return f"{self.rng.choice(HOSTS)}:{self.rng.randrange(4)}"

    def collect_contexts(self) -> None:
        for peer in self.node.core._peers.values():
            self.contexts += [peer.own_context, peer.remote_context]
        del self.contexts[3:-40]

    def pair(self) -> tuple[int, int]:
        """Return two contexts, often of one peer, so that not all packets are dropped."""
        peers = list(self.node.core._peers.values())
        if peers and self.rng.random() < 0.7:
            peer = self.rng.choice(peers)
            return peer.own_context, peer.remote_context
        return self.rng.choice(self.contexts), self.rng.choice(self.contexts)

    def packet(self) -> tuple[Control, str]:
        rng, address = self.rng, self.address()
        ours, theirs = self.pair()
        path, small, value = rng.choice((0, 1, 3, 9, 127, 128, 255)), rng.randrange(4), rng.getrandbits(32)
        cookie = self.jar.make(address=address, context=theirs, now=self.network.now)
        reports = (PathReport(small, small, value, small, small, small),) * rng.randrange(3)
        made: tuple[Control, ...] = (
            hello(context=theirs, cookie=rng.choice((b"", cookie, cookie)), path=path),
            hello(context=rng.getrandbits(64), path=path),
            Retry(ours, b"c" * rng.randrange(64), path, rng.choice((576, 1472, 8972))),
            Accept(ours, rng.choice((theirs, value)), value, value, value, 64 + small, 576 + small),
            Refuse(ours, rng.randrange(256)),
            Close(ours, theirs),
            Closed(ours, theirs),
            Reset(ours, theirs),
            Probe(ours, theirs, path, small, value, path, small),
            Nack(ours, small, rng.randrange(256)),
            Ack(ours, rng.randrange(3), small << 1, value, value, reports, small, path, path),
            PathChallenge(ours, value, path),
            PathResponse(ours, self.token(ours, path), path),
            PullRequest(ours, rng.choice((0, small, value, rng.getrandbits(64))), rng.choice((0, value)), small, path),
            Pull(ours, rng.choice((0, value, rng.getrandbits(64))), small, rng.choice((0, value, 1024)), path),
        )
        return rng.choice(made), address

    def token(self, context: int, path: int) -> int:
        peer = self.node.core._by_context.get(context)
        source = peer.addresses.sources.get(path) if peer else None
        return source.token if source else 7

    def step(self) -> None:
        core, now, rng = self.node.core, self.network.now, self.rng
        self.collect_contexts()
        batch = [self.packet() for _ in range(rng.randrange(1, BATCH))]
        controls = [(packet.encode(), address, now) for packet, address in batch]
        arrivals = [data_packet(rng.choice(self.contexts), psn=rng.randrange(6)) for _ in range(rng.randrange(3))]
        core.handle_packets(arrivals, controls=controls, now=now)
        self.command()
        if rng.random() < 0.3:
            self.network.now += rng.choice((0.0001, 0.01, 0.3, 2.0))
        core.handle_timeout(self.network.now)
        for _ in range(10_000):
            if core.poll_transmit(self.network.now) is None:
                return
        raise AssertionError("poll_transmit does not end")

    def command(self) -> None:
        """Call what an application may call at any time, for peers that exist or not."""
        core, now, rng = self.node.core, self.network.now, self.rng
        number = rng.randrange(core._next_number + 1)
        try:
            match rng.randrange(6):
                case 0:
                    core.connect(self.address(), sizes=(1472, 576), now=now)
                case 1 if number in core._peers:
                    core.post(number, WorkRequest(request=rng.getrandbits(30), length=rng.choice((0, 100, 5000))))
                case 2:
                    core.close(number, now=now)
                case 3:
                    core.accepted(number)
                case 4:
                    core.cancel(number, request=1, now=now)
                case _:
                    core.release(number, size_bytes=1, messages=1, now=now)
        except UsageError:
            pass  # the peer is gone, or not open


def check_order(events: list[Event]) -> tuple[int, int]:
    """Each peer opens at most once, before all else but its end, and nothing follows that; return opened and ended."""
    opened, ended = set[int](), set[int]()
    for event in events:
        assert event.peer not in ended, f"{event} after the end"
        if isinstance(event, PeerOpened):
            assert event.peer not in opened
            opened.add(event.peer)
        elif isinstance(event, PeerEnded):
            ended.add(event.peer)
        else:
            assert event.peer in opened, f"{event} before the beginning"
    return len(opened), len(ended)


def check_tables(node: Node) -> None:
    """The core's tables refer to existing peers only."""
    core = node.core
    alive: dict[int, PeerCore] = core._peers
    openings = core._openings
    assert all(peer.state is not PeerState.ENDED for peer in alive.values())
    assert set(core._by_context.values()) == set(alive.values())
    assert set(core._by_remote.values()) <= set(alive.values())
    assert set(core._opening_contexts.values()) == set(openings.values())
    assert not set(alive) & set(openings)
    assert sum(core._hosts.values()) == len(alive) + len(openings)
    assert set(core._ready) <= {*alive, *openings}
    assert len(core._unaccepted) <= CONFIG.max_unaccepted_peers


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("late", [False, True], ids=["delivered at once", "delivered late"])
def test_handle_packets__any_control_packets_in_any_order(seed: int, *, late: bool) -> None:
    network = Network(seed=seed, config=CONFIG)
    hostile, events = Hostile(network, seed=seed), list[Event]()
    core = network.a.core
    for step in range(STEPS):
        hostile.step()
        check_tables(network.a)
        while (not late or step % 10 == 9) and (event := core.poll_event()) is not None:
            if isinstance(event, PeerOpened):
                assert core.peer(event.peer).number == event.peer, "its owner may look it up"
            events.append(event)
    opened, ended = check_order(events + list(iter(core.poll_event, None)))
    assert opened > 5
    assert ended > 5
    assert not core._ended

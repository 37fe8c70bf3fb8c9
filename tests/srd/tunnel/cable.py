"""Two TUN interfaces in namespaces of their own, joined by a thread that hands over every packet as it was read."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Self

from netns.backends.kernel.netlink import apply
from netns.backends.relay.tap import inside
from netns.lab.operations import SyncCarrier
from srd.tunnel.errors import InterfaceGoneError
from srd.tunnel.tun import ALL_OFFLOAD, MAX_READ_BYTES, Offload, Tun
from tests.patience import PATIENCE_S
from tests.programs import run_to_end

ADDRESSES: Final = {4: ("10.9.0.1", "10.9.0.2"), 6: ("fd09::1", "fd09::2")}
_numbers = count()


def ip(*arguments: str, netns: str | None = None) -> str:
    where = ["-n", netns] if netns else []
    return run_to_end(["ip", *where, *arguments], check=True).stdout


@contextmanager
def namespaces(number: int) -> Iterator[list[str]]:
    """Named namespaces with loopback up."""
    names = [f"tu{os.getpid()}-{next(_numbers)}" for _ in range(number)]
    with ExitStack() as undo:
        for name in names:
            ip("netns", "add", name)
            undo.callback(ip, "netns", "delete", name)
            ip("link", "set", "lo", "up", netns=name)
        yield names


def veth(here: str, there: str, *, names: tuple[str, str] = ("eth0", "eth0"), mtu: int = 1500) -> None:
    """Lead a veth pair from one namespace to another."""
    link = ("mtu", str(mtu), "type", "veth", "peer", "name")
    ip("link", "add", names[0], *link, names[1], "mtu", str(mtu), "netns", there, netns=here)


def set_up(netns: str, device: str, *addresses: str) -> None:
    """Give an interface addresses, which are valid at once, and set it up."""
    for address in addresses:
        ip("address", "add", address, "dev", device, *(["nodad"] if ":" in address else []), netns=netns)
    ip("link", "set", device, "up", netns=netns)


@dataclass
class Cable:
    """Moves packets between two interfaces until it is closed or one of them is deleted."""

    ends: tuple[Tun, Tun]
    heads: list[tuple[int, bytes]] = field(default_factory=list)
    """Bytes of each packet moved, without its header, and its first 60 bytes with the header."""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._stop, self._stopper = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="cable")
        self._thread.start()

    def close(self) -> None:
        """Stop; raise what the thread has raised."""
        os.close(self._stopper)
        self._thread.join()
        os.close(self._stop)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        one, two = self.ends
        routes = {
            fd: (here, there, queue) for here, there in ((one, two), (two, one)) for queue, fd in enumerate(here.fds)
        }
        poller = select.poll()
        for fd in (self._stop, *routes):
            poller.register(fd, select.POLLIN)
        buffer = memoryview(bytearray(MAX_READ_BYTES))
        while True:
            for fd, _ in poller.poll():
                if fd == self._stop:
                    return
                try:
                    self._move(buffer, *routes[fd])
                except InterfaceGoneError:
                    return
                except BaseException as error:  # noqa: BLE001 - raised again by close()
                    self.error = error
                    return

    def _move(self, buffer: memoryview, here: Tun, there: Tun, queue: int) -> None:
        for _ in range(64):
            length = here.read_into(buffer, queue=queue)
            if length is None:
                return
            self.heads.append((length - 10, bytes(buffer[:60])))
            self.carry(buffer[:length], here=here, there=there, queue=queue)

    def carry(self, data: memoryview, *, here: Tun, there: Tun, queue: int) -> None:  # noqa: ARG002 - for subclasses
        """Hand over a packet with its header."""
        there.write((data[:10], data[10:]), queue=queue)


@dataclass
class Pair:
    """Namespaces with an interface each: 10.9.0.1 and fd09::1, 10.9.0.2 and fd09::2."""

    netns: list[str]
    tuns: tuple[Tun, Tun]
    cable: Cable

    def inside(self, side: int, work: Callable[[], None]) -> threading.Thread:
        """Start a thread in the namespace of a side."""

        def run() -> None:
            with inside(self.netns[side]):
                work()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def open_in(netns: str, name: str | None = None, *, queues: int = 1, offload: Offload = ALL_OFFLOAD) -> Tun:
    with inside(netns):
        return Tun.open(name, queues=queues, offload=offload)


class Connection:
    """A TCP connection from one namespace to an address of another."""

    def __init__(self, here: str, there: str, *, to: tuple[str, int]) -> None:
        with inside(there):
            listener = socket.create_server(to, family=socket.AF_INET6 if ":" in to[0] else socket.AF_INET)
        with listener, inside(here):
            near = socket.create_connection(to, PATIENCE_S)
            far = listener.accept()[0]
        far.settimeout(PATIENCE_S)
        self._sockets = (near, far)

    def exchange(self, megabytes: int) -> None:
        """Send random bytes both ways at once; compare every byte."""
        payloads = [os.urandom(megabytes << 20) for _ in self._sockets]
        senders = [
            threading.Thread(target=sock.sendall, args=(payload,))
            for sock, payload in zip(self._sockets, payloads, strict=True)
        ]
        received: list[bytes] = [b"", b""]

        def receive(side: int) -> None:
            parts, left = [], megabytes << 20
            while left and (part := self._sockets[side].recv(min(left, 1 << 18))):
                parts.append(part)
                left -= len(part)
            received[side] = b"".join(parts)

        receivers = [threading.Thread(target=receive, args=(side,)) for side in range(2)]
        for thread in (*senders, *receivers):
            thread.start()
        for thread in (*senders, *receivers):
            thread.join()
        assert received[0] == payloads[1]
        assert received[1] == payloads[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            sock.close()


def set_up_tun(netns: str, tun: Tun, *networks: str, mtu: int = 1500) -> None:
    """Give a TUN interface addresses, and have it send."""
    ip("link", "set", tun.name, "mtu", str(mtu), "txqueuelen", "2000", netns=netns)
    set_up(netns, tun.name, *networks)
    apply([SyncCarrier(netns, tun.name)])


@contextmanager
def pair_of_tuns(*, offload: Offload = ALL_OFFLOAD, queues: int = 1, mtu: int = 1500) -> Iterator[Pair]:
    with ExitStack() as undo:
        names = undo.enter_context(namespaces(2))
        tuns = [undo.enter_context(open_in(name, queues=queues, offload=offload)) for name in names]
        for side, (name, tun) in enumerate(zip(names, tuns, strict=True)):
            set_up_tun(name, tun, f"{ADDRESSES[4][side]}/24", f"{ADDRESSES[6][side]}/64", mtu=mtu)
        cable = Cable((tuns[0], tuns[1]))
        undo.callback(cable.close)
        yield Pair(names, (tuns[0], tuns[1]), cable)

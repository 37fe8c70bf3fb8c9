"""The process of the relay backend: carry the frames of every shaped link of a lab between its two TAP devices.

    python -m netns.backends.relay.relay SPEC.json <<< go

For kernels without sch_netem. Where the kernel backend puts a netem qdisc on each end of a veth pair, this one puts a
TAP on each end. One process reads frames from both, holds them as netns/netem/queue.py decides, and writes them to the
other end when they are due. SPEC.json is defined in netns/backends/relay/spec.py; control requests come in at
netns/backends/relay/control_server.py. The process does nothing before it reads a line on its standard input
(netns/backends/relay/client.py has the reason).

Theory of operation. One thread, one epoll. A turn sends the frames that are due and reads the frames that wait: first
one frame from each readable TAP, because most have one, then a bounded batch from those that are still readable. Each
turn scans all directions for those that are due, because a heap would cost more for each frame.

Time. After a turn that carried frames the relay sleeps for the coalescing time: the kernel queues frames meanwhile,
which costs less than a wake-up for each. Reading late does not change the emulation, because the departure of a frame
follows from its arrival, which is estimated (relay_link.py), as long as it is read before it is due. So the next
turn starts MAX_COALESCE_NS after this one, or sooner if any link's delay is shorter. Writing late does delay frames,
by half a coalescing time on average, but the delay does not add up over the links of a path: frames that one turn
wrote to a link, and the next turn reads from it, are taken to have arrived evenly over the time since the turn before,
which is when they were due.

After a turn that carried nothing the relay waits for the next frame or departure, whichever is first, and so serves a
low-rate flow exactly. netem's unit is the nanosecond, that of Python's epoll the millisecond; but an epoll descriptor
is itself readable when it has events, so that select() on it sleeps with microsecond resolution, and with a timer slack
of 1 ns it wakes on time. If the relay then has to wait for a CPU, frames that arrive meanwhile are spread over that
time.

The garbage collector is off: frames are bytes in tuples, which never form cycles, and the memory that they use is
bounded by the limits of the shapes.

The relay ends on SIGTERM and SIGINT, and when all its namespaces or devices are gone. The frames that it holds then
are lost, as when a cable is cut.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from netns.backends.relay.control_server import ControlServer
from netns.backends.relay.relay_link import BATCH_FRAMES, RelayLinkDirection
from netns.backends.relay.spec import load_spec
from netns.backends.relay.tap import attach, identity_of
from netns.errors import BackendError, LabError
from netns.netem.distributions import UNIFORM
from netns.netem.queue import NS_PER_S
from netns.netem.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netns.backends.relay.tap import Tap
    from netns.lab.operations import RelayLink

# The time from the start of one busy turn to the next. A sleep has a fixed CPU cost, which is high in a virtual
# machine: below the minimum, sleeping would cost more than carrying frames.
MAX_COALESCE_NS: Final = 350_000
MIN_COALESCE_NS: Final = 100_000
HOUSEKEEPING_NS: Final = 1_000_000_000
NICENESS: Final = -15  # netem runs in the kernel's soft interrupts, ahead of every process

PR_SET_TIMERSLACK: Final = 29  # linux/prctl.h
M_TRIM_THRESHOLD: Final = -1  # malloc.h
HELD_HEAP_BYTES: Final = 256 << 20


SCHEDSTAT: Final = Path("/proc/self/schedstat")
_LINE_BYTES: Final = 128


class SchedDelay:
    """The time for which this process was runnable but waited for a CPU: it makes wake-ups late.

    The kernel's statistics (Documentation/scheduler/sched-stats.rst). Without them, the delay counts as zero.
    """

    def __init__(self, path: Path = SCHEDSTAT) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None

    def waited_ns(self) -> int:
        """Return the ns for which the process was runnable and did not run, since it started."""
        return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1]) if self._fd is not None else 0

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Relay:
    """All directions of a lab's shaped links, and the loop that serves them."""

    def __init__(self, control: Path, links: Iterable[RelayLink]) -> None:
        self._links: dict[str, dict[str, RelayLinkDirection]] = {}
        self._by_source_fd: dict[int, RelayLinkDirection] = {}
        self._identities: dict[str, tuple[int, int] | None] = {}
        self._directions: list[RelayLinkDirection] = []
        self._since_ns = self._polled_at_ns = monotonic_ns()
        self._stopping = False
        self._resources = ExitStack()
        with ExitStack() as undo:
            undo.callback(self._resources.close)
            self._epoll = self._resources.enter_context(select.epoll())
            self._sched_delay = self._resources.enter_context(closing(SchedDelay()))
            for link in links:
                self._join(link)
            self._coalesce_ns = coalesce_ns(self._shapes())
            self._control_server = ControlServer(control, epoll=self._epoll, answer=self.answer)
            self._resources.callback(self._control_server.close)
            undo.pop_all()

    def close(self) -> None:
        """Detach from all TAPs and remove the control socket."""
        self._resources.close()

    def stop(self) -> None:
        """Let `run` end after the current turn."""
        self._stopping = True

    def wake_on(self, fd: int) -> None:
        """End the loop's sleep, and do nothing else, when `fd` becomes readable."""
        self._epoll.register(fd, select.EPOLLIN)

    def run(self) -> None:
        """Carry frames until `stop` is called, or until no TAP is left."""
        housekeeping_at = 0
        while not self._stopping and self._by_source_fd:
            started_at = monotonic_ns()
            if started_at >= housekeeping_at:
                self._release_vanished()
                housekeeping_at = started_at + HOUSEKEEPING_NS
            if self._turn():
                remaining_ns = started_at + self._coalesce_ns - monotonic_ns()
                if remaining_ns > 0:
                    time.sleep(remaining_ns / NS_PER_S)
            else:
                due_at_ns = min(direction.due_at_ns for direction in self._directions)
                self._wait_until(min(due_at_ns, housekeeping_at))

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Execute a control request; BackendError or ShapeError if it cannot be done."""
        match message:
            case {"op": "counters"}:
                return self._counters()
            case {"op": "set", "link": str(link), "direction": str(direction), "shape": dict(shape)}:
                self._reshape(self._find(link, direction=direction), Shape.from_dict(shape))
                return {}
        raise BackendError(f"no such request: {json.dumps(message)}")

    def _reshape(self, direction: RelayLinkDirection, shape: Shape) -> None:
        """Change a shape for frames that arrive from now on: unread frames arrived before, and get the old shape."""
        direction.read(limit_frames=BATCH_FRAMES)
        direction.admit(since_ns=self._since_ns, now_ns=monotonic_ns())
        direction.netem.reshape(shape)
        self._coalesce_ns = coalesce_ns(self._shapes())

    def _join(self, link: RelayLink) -> None:
        a, b = self._attach(link.netns_a, link.ifname_a), self._attach(link.netns_b, link.ifname_b)
        self._links[link.name] = {
            "ab": RelayLinkDirection(source=a, sink=b, shape=link.shape_ab, seed=link.seed_ab),
            "ba": RelayLinkDirection(source=b, sink=a, shape=link.shape_ba, seed=link.seed_ba),
        }
        for direction in self._links[link.name].values():
            self._directions.append(direction)
            self._by_source_fd[direction.source.fd] = direction
            self._epoll.register(direction.source.fd, select.EPOLLIN)

    def _attach(self, netns: str, ifname: str) -> Tap:
        tap = attach(netns=netns, ifname=ifname)
        self._resources.callback(tap.close)
        self._identities.setdefault(netns, identity_of(netns))
        return tap

    def _turn(self) -> bool:
        """Send the frames that are due and read those that wait; return whether there were any."""
        carried = self._send_due()
        self._since_ns, self._polled_at_ns = self._polled_at_ns, monotonic_ns()
        readable = self._read(limit_frames=1)
        if not readable:
            return carried
        readable += self._read(limit_frames=BATCH_FRAMES)
        now_ns = monotonic_ns()
        for direction in readable:
            direction.admit(since_ns=self._since_ns, now_ns=now_ns)
            if direction.due_at_ns <= now_ns:  # no delay, or it has passed because the relay got the CPU late
                direction.send_due(now_ns)
        return True

    def _read(self, *, limit_frames: int) -> list[RelayLinkDirection]:
        """Read up to `limit_frames` from each readable TAP, return their directions; handle control requests, too."""
        readable = []
        for fd, _ in self._epoll.poll(0):
            direction = self._by_source_fd.get(fd)
            if direction is None:
                self._control_server.handle(fd)
                continue
            readable.append(direction)
            if not direction.read(limit_frames=limit_frames):
                self._release(direction)
        return readable

    def _send_due(self) -> bool:
        """Send what is due in each direction; return whether there was anything."""
        now_ns, sent = monotonic_ns(), False
        for direction in self._directions:
            if direction.due_at_ns <= now_ns:
                direction.send_due(now_ns)
                now_ns, sent = monotonic_ns(), True
        return sent

    def _wait_until(self, at_ns: int) -> None:
        """Wait for a frame or a request, until `at_ns` at most.

        A frame or request ends the wait at once, so whatever is there afterwards arrived no sooner than the process was
        ready to run.
        """
        remaining_ns = at_ns - monotonic_ns()
        if remaining_ns <= 0:
            return
        waited_ns = self._sched_delay.waited_ns()
        select.select([self._epoll], [], [], remaining_ns / NS_PER_S)
        ready_at_ns = monotonic_ns() - (self._sched_delay.waited_ns() - waited_ns)
        self._polled_at_ns = max(self._polled_at_ns, ready_at_ns)

    def _release_vanished(self) -> None:
        """Release namespaces that were deleted by name: only the relay's open TAPs still keep them alive."""
        gone = {name for name, identity in self._identities.items() if identity_of(name) != identity}
        for direction in list(self._by_source_fd.values()):
            if direction.source.netns in gone:
                self._release(direction)

    def _release(self, direction: RelayLinkDirection) -> None:
        """Stop reading from a source that is gone."""
        self._epoll.unregister(direction.source.fd)
        del self._by_source_fd[direction.source.fd]

    def _shapes(self) -> list[Shape]:
        return [direction.netem.shape for direction in self._directions]

    def _find(self, link: str, *, direction: str) -> RelayLinkDirection:
        try:
            return self._links[link][direction]
        except KeyError:
            raise BackendError(f"no such link and direction: {link} {direction}") from None

    def _counters(self) -> dict[str, Any]:
        directions = self._directions
        left = sum(direction.packets + direction.refused for direction in directions)
        late_ns = sum(direction.late_ns for direction in directions)
        return {
            "pid": os.getpid(),
            "links": {
                name: {key: direction.counters() for key, direction in pair.items()}
                for name, pair in self._links.items()
            },
            "cpu_seconds": time.process_time(),
            "late_mean_us": late_ns / max(1, left) / 1000,
            "late_total_us": late_ns / 1000,
            "late_max_us": max(direction.late_max_ns for direction in directions) / 1000,
            "tap_drops": sum(direction.tap_drops() for direction in directions),
        }


def coalesce_ns(shapes: Iterable[Shape]) -> int:
    """Return the coalescing time for these shapes: no longer than any delay of a shape that passes packets at all."""
    delays_us = [_least_delay_us(shape) for shape in shapes if shape.loss_percent < 100]
    shortest_ns = round(min(delays_us, default=0) * 1000)
    return max(MIN_COALESCE_NS, min(shortest_ns, MAX_COALESCE_NS))


def _least_delay_us(shape: Shape) -> float:
    """The shortest delay of a packet; the tables reach four times the jitter below the mean."""
    if shape.reorder_chance_percent:
        return 0
    return shape.delay_us - shape.jitter_us * (1 if shape.distribution == UNIFORM else 4)


def main(arguments: list[str]) -> int:
    """Relay what the specification in the only argument defines, until stopped; return the exit status."""
    if len(arguments) != 1:
        print("usage: python -m netns.backends.relay.relay SPEC.json", file=sys.stderr)
        return 2
    try:
        control, links = load_spec(Path(arguments[0]))
        if not sys.stdin.readline():
            return 0
        relay = Relay(control, links)
    except LabError as error:
        print(f"relay: {error}", file=sys.stderr)
        return 1
    with closing(relay):
        _handle_signals(relay)
        _raise_priority()
        relay.run()
    return 0


def _handle_signals(relay: Relay) -> None:
    """Stop on SIGTERM and SIGINT; a signal ends the loop's sleep through a descriptor."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    relay.wake_on(reader)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: relay.stop())


def _raise_priority() -> None:
    """Set priority, timer slack, memory and garbage collection for exact and prompt wake-ups."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    if hasattr(
        libc, "mallopt"
    ):  # glibc's default returns freed memory to the kernel, and faults it in again on each read
        libc.mallopt(M_TRIM_THRESHOLD, HELD_HEAP_BYTES)
    with suppress(OSError):  # root in a container may lack CAP_SYS_NICE; then the relay only runs later
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        # Where the kernel groups automatically, a session is scheduled as one group, and the group's weight counts.
        Path("/proc/self/autogroup").write_text(str(NICENESS))
    gc.collect()
    gc.freeze()
    gc.disable()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

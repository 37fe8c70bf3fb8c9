"""The egress guard: a card opens no connection, and starts no program, that its control plane did not ask for.

    guard = EgressGuard(alarms)                          # allows nothing yet
    guard.set_allowed(frozenset({"10.0.1.2"}))           # with each mapping: the addresses of the other cards
    guard.install()                                      # from here on, Python's own calls are checked
    guard.check("10.0.1.2")                              # by the engine, for a new peer; may raise TrustError
    guard.allow_exec()                                   # once, for a live update's os.execv
    guard.close()                                        # tests; a card keeps it to its end

What it sees. An audit hook of Python is called before connect, sendto, sendmsg, name resolution (of names and of
addresses) and the start of a program, from whatever module, also a library's. A call that is not allowed raises
`EgressRefusedError`, which is a TrustError and, as a firewall's refusal, a PermissionError; and it raises an alarm.
Sockets of Unix are local and pass. A UDP socket that has a port already may be asked by strangers: its answers to them
are refused without an alarm.

What it does not see. Code that is not Python's: the packets that `srd.io` hands to sendmmsg by itself, and libuv's
connects in uvloop. For the first, `check` is called where the engine opens a peer. The second is what
`nitro_emu.trust.confinement` denies in the kernel: a confined card has no TCP connect at all.

An audit hook cannot be removed (PEP 578), which is its point; so the process has one, and guards are switched.
"""

from __future__ import annotations

import errno
import ipaddress
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.alarms import Alarms

ALARM: Final = "egress"

MAX_HOSTS: Final = 1 << 16
"""Addresses that may be allowed: a mapping has at most as many cards."""

_STARTS_PROGRAM: Final = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen"}
)


class EgressRefusedError(TrustError, PermissionError):
    """The guard has refused a call. For callers that expect a firewall's refusal it is a PermissionError (EPERM)."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)
        self.text = text

    def __str__(self) -> str:
        """Return the reason."""
        return self.text


class EgressGuard:
    """Refuses destinations and programs that the control plane did not ask for. Any thread may use it."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._allowed: frozenset[str] | None = frozenset()
        self._execs = 0
        self._guard = threading.Lock()
        self._on_event: Mapping[str, Callable[[tuple[Any, ...]], None]] = {
            "socket.connect": self._on_connect,
            "socket.sendto": self._on_address,
            "socket.sendmsg": self._on_address,
            "socket.getaddrinfo": self._on_lookup,
            "socket.gethostbyname": self._on_lookup,
            "socket.gethostbyaddr": self._on_reverse_lookup,
            "socket.getnameinfo": self._on_reverse_lookup,
            **{event: self._program(event) for event in _STARTS_PROGRAM},
        }

    def set_allowed(self, hosts: frozenset[str] | None) -> None:
        """Allow these IP addresses, as text, and no others. None: any, for a card without a control plane.

        Raises TrustError for what is no address, or for too many; what was allowed stays so.
        """
        if hosts is not None and len(hosts) > MAX_HOSTS:
            raise TrustError(f"{len(hosts)} addresses are more than {MAX_HOSTS}; divide the mapping")
        self._allowed = None if hosts is None else frozenset(_canonical(host) for host in hosts)

    def check(self, host: str) -> None:
        """Raise EgressRefusedError, and an alarm, unless the host is allowed."""
        if not self._is_allowed(host):
            self._refuse(f"{host:.100}: the control plane did not ask for it")

    def allow_exec(self) -> None:
        """Let the next os.exec* pass: a live update replaces this program."""
        with self._guard:
            self._execs += 1

    def install(self) -> None:
        """Check the calls of this process from now on. Raises TrustError if another guard does."""
        _hook.switch_on(self, self._on_event)

    def close(self) -> None:
        """Stop checking calls; `check` goes on. May be called again."""
        _hook.switch_off(self)

    # -- what the hook finds ------------------------------------------------------------------------------------

    def _is_allowed(self, host: str) -> bool:
        allowed = self._allowed
        if allowed is None or host in allowed:
            return True
        try:  # another spelling of an allowed one
            return _canonical(host) in allowed
        except TrustError:
            return False

    def _on_address(self, args: tuple[Any, ...]) -> None:
        """Check a datagram's destination; the hot path of control packets."""
        sock, address = args
        if type(address) is not tuple or address[0] in (self._allowed or ()):
            return  # a Unix socket's path, a connected socket, or allowed
        if not self._is_allowed(str(address[0])) and sock.getsockname()[1]:
            raise EgressRefusedError(f"egress guard: no answer to {address!r:.100}")  # a stranger's packet: no alarm
        self.check(str(address[0]))

    def _on_connect(self, args: tuple[Any, ...]) -> None:
        sock, address = args
        if type(address) is not tuple:
            return
        if sock.type & 0xF != _SOCK_DGRAM:
            self._refuse(f"a connection to {address!r:.100}: a card opens none")
        self.check(str(address[0]))

    def _on_lookup(self, args: tuple[Any, ...]) -> None:
        """Refuse to resolve names: a query leaves the card. An address that is written as one needs none."""
        host = args[0].decode(errors="replace") if isinstance(args[0], bytes) else args[0]
        if host in (None, "", "localhost"):
            return
        try:
            _canonical(str(host))
        except TrustError:
            self._refuse(f"a query for the name {host!r:.100}: a card resolves none; use an address")

    def _on_reverse_lookup(self, args: tuple[Any, ...]) -> None:
        """Refuse to look for the name of an address: also of this host's own, since a server of names is asked."""
        self._refuse(f"a query for the name of {args[0]!r:.100}: a card looks for none; use the address")

    def _program(self, event: str) -> Callable[[tuple[Any, ...]], None]:
        def on_program(args: tuple[Any, ...]) -> None:
            if event == "os.exec":
                with self._guard:
                    if self._execs:
                        self._execs -= 1
                        return
            what = f" of {args[0]!r:.100}" if args else ""
            self._refuse(f"{event}{what}: a card starts no programs")

        return on_program

    def _refuse(self, text: str) -> None:
        self._alarms.raise_alarm(ALARM, text)
        raise EgressRefusedError(f"egress guard: {text}")


_SOCK_DGRAM: Final = 2


def _canonical(host: str) -> str:
    """Return the one spelling of an address. Raises TrustError for what is none."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise TrustError(f"{host!r:.100} is no IP address; give one, such as 10.0.1.2") from None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


class _Hook:
    """The one audit hook of this process: which guard it asks."""

    def __init__(self) -> None:
        self._owner: EgressGuard | None = None
        self._on_event: Mapping[str, Callable[[tuple[Any, ...]], None]] = {}
        self._added = False
        self._guard = threading.Lock()

    def switch_on(self, owner: EgressGuard, on_event: Mapping[str, Callable[[tuple[Any, ...]], None]]) -> None:
        with self._guard:
            if self._owner not in (None, owner):
                raise TrustError("another egress guard is installed in this process; close it first")
            self._owner, self._on_event = owner, on_event
            if not self._added:
                sys.addaudithook(self._called)
                self._added = True

    def switch_off(self, owner: EgressGuard) -> None:
        with self._guard:
            if self._owner is owner:
                self._owner, self._on_event = None, {}

    def _called(self, event: str, args: tuple[Any, ...]) -> None:
        found = self._on_event.get(event)
        if found is not None:
            found(args)


_hook: Final = _Hook()

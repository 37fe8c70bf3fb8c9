"""nitro_emu.trust.seccomp: what the program decides, run by an interpreter of BPF, for both machines.

That the kernel takes it and does the same is in test_confinement.
"""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust.seccomp import ALLOW, DENIED, MACHINES, MISSING, REFUSE, filter_program

ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "socket": 41, "clone": 56, "clone3": 435, "sendto": 44, "sendmsg": 46, "sendmmsg": 307, "execve": 59, "read": 0,
        "ptrace": 101, "process_vm_readv": 310, "mount": 165, "bpf": 321, "fork": 57, "io_uring_enter": 426,
        "recvmmsg": 299, "prctl": 157, "seccomp": 317, "memfd_create": 319, "kill": 62, "connect": 42,
    },
    "aarch64": {
        "socket": 198, "clone": 220, "clone3": 435, "sendto": 206, "sendmsg": 211, "sendmmsg": 269, "execve": 221,
        "read": 63, "ptrace": 117, "process_vm_readv": 270, "mount": 40, "bpf": 280, "io_uring_enter": 426,
        "recvmmsg": 243, "prctl": 167, "seccomp": 277, "memfd_create": 279, "kill": 129, "connect": 203,
    },
}  # fmt: skip

NEEDED = ("sendto", "sendmsg", "sendmmsg", "execve", "read", "recvmmsg", "prctl", "seccomp", "memfd_create", "connect")
UDP, TCP, RAW, CLOEXEC, NONBLOCK = socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_RAW, 0o2000000, 0o4000
MPTCP, SCTP, UDPLITE, ICMP = 262, 132, 136, 1
AF_NETLINK, AF_PACKET, AF_VSOCK, AF_ALG = 16, 17, 40, 38


def decision(program: bytes, *, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Run the program, as the kernel does, on one system call."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<iIQ6Q", number, architecture, 0, *padded)
    at, loaded = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            loaded = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            loaded &= value
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += if_true if holds else if_false


def decide(machine: str, call: str | int, *arguments: int, tcp_sockets: bool = False, ring: bool = False) -> int:
    program = filter_program(machine, tcp_sockets=tcp_sockets, event_loop_ring=ring)
    number = NUMBERS[machine][call] if isinstance(call, str) else call
    return decision(program, architecture=ARCHITECTURE[machine], number=number, arguments=arguments)


@pytest.mark.parametrize("machine", MACHINES)
class TestProgram:
    @pytest.mark.parametrize("call", NEEDED)
    def test_what_a_card_needs_is_allowed(self, machine: str, call: str) -> None:
        assert decide(machine, call) == ALLOW
        assert decide(machine, call, tcp_sockets=True) == ALLOW

    @pytest.mark.parametrize("call", ["ptrace", "process_vm_readv", "mount", "bpf", "io_uring_enter"])
    def test_what_it_does_not_need_is_denied(self, machine: str, call: str) -> None:
        assert decide(machine, call) == REFUSE == 0x00050000 | errno.EPERM

    def test_ring_of_the_event_loop_stays(self, machine: str) -> None:
        assert decide(machine, "io_uring_enter", ring=True) == ALLOW

    def test_number_of_denied_calls_is_the_tables(self, machine: str) -> None:
        denied = {number for number in range(600) if decide(machine, number) == REFUSE}
        expected = len(DENIED) + 3  # and io_uring_enter, and clone and socket with these arguments
        absent = 0 if machine == "x86_64" else 10
        assert len(denied) == expected - absent

    def test_threads_are_allowed_and_processes_are_not(self, machine: str) -> None:
        assert decide(machine, "clone", 0x3D0F00) == ALLOW  # glibc's flags for a thread
        assert decide(machine, "clone", 0x1200011) == REFUSE  # and for fork
        assert decide(machine, "clone3") == MISSING

    def test_other_architecture_is_denied(self, machine: str) -> None:
        program = filter_program(machine, tcp_sockets=True, event_loop_ring=True)
        assert decision(program, architecture=0x40000003, number=NUMBERS[machine]["read"]) == REFUSE

    @pytest.mark.parametrize(
        ("arguments", "allowed"),
        [
            ((socket.AF_UNIX, TCP, 0), True),
            ((socket.AF_UNIX, socket.SOCK_SEQPACKET | CLOEXEC, 0), True),
            ((socket.AF_INET, UDP, 0), True),
            ((socket.AF_INET6, UDP | CLOEXEC | NONBLOCK, socket.IPPROTO_UDP), True),
            ((AF_NETLINK, RAW | CLOEXEC, 0), True),
            ((AF_NETLINK, RAW, 9), False),
            ((socket.AF_INET, UDP, UDPLITE), False),
            ((socket.AF_INET, UDP, ICMP), False),
            ((socket.AF_INET, TCP, 0), False),
            ((socket.AF_INET6, TCP | CLOEXEC, socket.IPPROTO_TCP), False),
            ((socket.AF_INET, RAW, 1), False),
            ((AF_PACKET, RAW, 0x300), False),
            ((AF_PACKET, UDP, 0x300), False),
            ((AF_VSOCK, TCP, 0), False),
            ((AF_ALG, socket.SOCK_SEQPACKET, 0), False),
        ],
    )
    def test_sockets(self, machine: str, arguments: tuple[int, ...], *, allowed: bool) -> None:
        assert decide(machine, "socket", *arguments) == (ALLOW if allowed else REFUSE)

    @pytest.mark.parametrize(
        ("protocol", "allowed"), [(0, True), (socket.IPPROTO_TCP, True), (MPTCP, False), (SCTP, False)]
    )
    def test_tcp_sockets_for_listeners(self, machine: str, protocol: int, *, allowed: bool) -> None:
        for family in (socket.AF_INET, socket.AF_INET6):
            found = decide(machine, "socket", family, TCP | CLOEXEC, protocol, tcp_sockets=True)
            assert found == (ALLOW if allowed else REFUSE)
        assert decide(machine, "socket", socket.AF_INET, UDP, 0, tcp_sockets=True) == ALLOW
        assert decide(machine, "socket", socket.AF_INET, RAW, 6, tcp_sockets=True) == REFUSE

    @pytest.mark.parametrize(("call", "at"), [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)])
    def test_send_that_connects_is_denied(self, machine: str, call: str, at: int) -> None:
        arguments = [0] * 6
        arguments[at] = socket.MSG_DONTWAIT
        assert decide(machine, call, *arguments, tcp_sockets=True) == ALLOW
        arguments[at] |= 0x20000000  # MSG_FASTOPEN
        assert decide(machine, call, *arguments, tcp_sockets=True) == REFUSE


def test_x32_is_denied() -> None:
    assert decide("x86_64", 0x40000000 | 101) == REFUSE
    assert decide("x86_64", "fork") == REFUSE


def test_other_machine_has_no_table() -> None:
    with pytest.raises(TrustError, match="no table of system calls for riscv64, only for x86_64, aarch64"):
        filter_program("riscv64", tcp_sockets=False, event_loop_ring=False)

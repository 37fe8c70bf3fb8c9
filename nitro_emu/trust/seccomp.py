"""The system calls that a confined card cannot make: a BPF program for seccomp(2), for x86_64 and aarch64.

    load_filter(filter_program("x86_64", tcp_sockets=False, event_loop_ring=False), machine="x86_64")

The program refuses with EPERM, so that a library that tries a call for speed goes on without it. It is a list of what
is denied, not of what is allowed: Python, numpy and libuv use different calls from version to version, and a card that
dies of a new one is no gain. The kernel skips the program for calls whose number alone decides (Linux 5.11).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nitro_emu.errors import TrustError

# Name: number on x86_64, on aarch64 (None: it does not exist there).
_NUMBERS: Final[Mapping[str, tuple[int, int | None]]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "unshare": (272, 97),
    "setns": (308, 268),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "personality": (135, 92),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
}
"""What a card never needs. Other processes' memory; the kernel's own; file systems; the clock; namespaces; keys of the
kernel; processes. Rings of io_uring make sockets that no filter sees."""

DENIED: Final = frozenset(_NUMBERS)
"""Names of the system calls that are denied in every case."""

_SOCKET: Final = (41, 198)
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_SENDTO: Final = (44, 206)
_SENDMSG: Final = (46, 211)
_SENDMMSG: Final = (307, 269)
_SECCOMP: Final = (317, 277)
_IO_URING_ENTER: Final = (426, 426)

_ARCHITECTURES: Final[Mapping[str, int]] = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
MACHINES: Final = tuple(_ARCHITECTURES)
"""For which there is a table, as `os.uname().machine` names them."""

# Classic BPF (linux/bpf_common.h) and seccomp's own (linux/seccomp.h).
_LD, _JEQ, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW: Final = 0x7FFF0000
REFUSE: Final = 0x00050000 | errno.EPERM
MISSING: Final = 0x00050000 | errno.ENOSYS
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data; both machines are little-endian
_X32: Final = 0x40000000
"""System calls of x86_64 from here on are those of its variant with 32-bit pointers."""

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_TYPE_MASK = 1, 2, 0xF
_IPPROTO_TCP, _IPPROTO_UDP, _NETLINK_ROUTE = 6, 17, 0
_CLONE_THREAD: Final = 0x00010000
_MSG_FASTOPEN: Final = 0x20000000
"""A send that connects, which Landlock does not see."""

_INSTRUCTION: Final = struct.Struct("=HBBI")
_Block = list[bytes]

_SET_MODE_FILTER, _TSYNC = 1, 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


def filter_program(machine: str, *, tcp_sockets: bool, event_loop_ring: bool) -> bytes:
    """Return the program, 8 bytes for each instruction. Raises TrustError for a machine without a table.

    `tcp_sockets`: TCP sockets may be made; `event_loop_ring`: io_uring_enter stays, as this process has a ring already.
    """
    if machine not in _ARCHITECTURES:
        raise TrustError(f"seccomp: there is no table of system calls for {machine}, only for {', '.join(MACHINES)}")
    column = MACHINES.index(machine)
    program = [_load(_ARCHITECTURE_AT), *_unless(_ARCHITECTURES[machine], REFUSE), _load(_NUMBER_AT)]
    if machine == "x86_64":
        program += [_jump(_JGE, _X32, skip=1), _return(REFUSE)]
    if tcp_sockets:
        for call, flags in ((_SENDTO, 3), (_SENDMSG, 2), (_SENDMMSG, 3)):
            program += _on(call[column], _no_fast_open(flags))
    program += _on(_SOCKET[column], _sockets(tcp_sockets=tcp_sockets))
    program += _on(_CLONE[column], [_load(_ARGUMENTS_AT), *_unless_set(_CLONE_THREAD, REFUSE), _return(ALLOW)])
    program += _on(_CLONE3[column], [_return(MISSING)])  # its flags are in memory; libraries use clone then
    if not event_loop_ring:
        program += _on(_IO_URING_ENTER[column], [_return(REFUSE)])
    for numbers in _NUMBERS.values():
        if (number := numbers[column]) is not None:
            program += _on(number, [_return(REFUSE)])
    return b"".join([*program, _return(ALLOW)])


def load_filter(program: bytes, *, machine: str) -> str | None:
    """Apply a program to all threads of this process; return why not, if the kernel has no seccomp.

    Raises TrustError if the kernel has it and refuses.
    """
    kept = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // _INSTRUCTION.size, ctypes.addressof(kept))
    number = _SECCOMP[MACHINES.index(machine)]
    result = _libc.syscall(ctypes.c_long(number), ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_TSYNC), described)
    del kept  # alive until here
    if result == 0:
        return None
    if result > 0:
        raise TrustError(f"seccomp: thread {result} has a filter of its own; confine the process before others start")
    if (reason := ctypes.get_errno()) in {errno.EINVAL, errno.ENOSYS}:
        return os.strerror(reason)
    raise TrustError(f"seccomp is refused: {os.strerror(reason)}; set no_new_privs first")


def _sockets(*, tcp_sockets: bool) -> _Block:
    """Return what decides on socket(family, type, protocol)."""
    stream = [
        _load(_ARGUMENTS_AT + 8),
        _and(_SOCK_TYPE_MASK),
        *_if(_SOCK_DGRAM, [_load(_ARGUMENTS_AT + 16), *_if_any((0, _IPPROTO_UDP), ALLOW), _return(REFUSE)]),
    ]
    if tcp_sockets:
        tcp = [_load(_ARGUMENTS_AT + 16), *_if_any((0, _IPPROTO_TCP), ALLOW), _return(REFUSE)]  # not MPTCP, not SCTP
        stream += _if(_SOCK_STREAM, tcp)
    stream += [_return(REFUSE)]
    return [
        _load(_ARGUMENTS_AT),
        *_if_any((_AF_UNIX,), ALLOW),
        *_if(_AF_NETLINK, [_load(_ARGUMENTS_AT + 16), *_if_any((_NETLINK_ROUTE,), ALLOW), _return(REFUSE)]),
        *_if(_AF_INET, stream),
        *_if(_AF_INET6, stream),
        _return(REFUSE),
    ]


def _no_fast_open(argument: int) -> _Block:
    return [_load(_ARGUMENTS_AT + 8 * argument), _jump(_JSET, _MSG_FASTOPEN, skip=1), _return(REFUSE), _return(ALLOW)]


# -- the assembler: each block either returns, or goes on behind itself -----------------------------------------------


def _load(offset: int) -> bytes:
    return _INSTRUCTION.pack(_LD, 0, 0, offset)


def _and(mask: int) -> bytes:
    return _INSTRUCTION.pack(_AND, 0, 0, mask)


def _return(value: int) -> bytes:
    return _INSTRUCTION.pack(_RET, 0, 0, value)


def _jump(kind: int, value: int, *, skip: int) -> bytes:
    """Go on behind this instruction if the condition holds; skip the next `skip` ones if it does not."""
    return _INSTRUCTION.pack(kind, 0, skip, value)


def _if(value: int, block: _Block) -> _Block:
    """Run a block, which returns, if the loaded value is this one; the loaded value stays otherwise."""
    return [_jump(_JEQ, value, skip=len(block)), *block]


def _if_any(values: tuple[int, ...], result: int) -> _Block:
    return [part for value in values for part in _if(value, [_return(result)])]


_on = _if


def _unless(value: int, result: int) -> _Block:
    return [_INSTRUCTION.pack(_JEQ, 1, 0, value), _return(result)]


def _unless_set(bit: int, result: int) -> _Block:
    return [_INSTRUCTION.pack(_JSET, 1, 0, bit), _return(result)]

"""nitro_emu.trust.confinement, in child processes, as none of it can be taken back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.trust import landlock
from tests.programs import run_to_end

MACHINE_HAS_TABLE = os.uname().machine in {"x86_64", "aarch64"}
OTHER_UID, CARD_UID = 65533, 65534

PRELUDE = """
import ctypes, json, os, resource, socket, subprocess, sys, threading
from pathlib import Path
from nitro_emu.errors import TrustError
from nitro_emu.trust.confinement import confine

def tried(call):
    try:
        call()
        return "done"
    except OSError as error:
        return error.strerror
    except TrustError as error:
        return str(error)
"""

pytestmark = pytest.mark.skipif(not MACHINE_HAS_TABLE, reason="seccomp has no table for this machine")
needs_landlock = pytest.mark.skipif(landlock.abi() < landlock.NETWORK_ABI, reason="this kernel has no such Landlock")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def found_in(program: str, *arguments: object) -> Any:
    """Run a program in a child; return what it has printed as JSON."""
    text = PRELUDE + textwrap.dedent(program)
    done = run_to_end([sys.executable, "-c", text, *map(str, arguments)])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CALLS = """
calls = {
    "udp": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
    "unix": lambda: socket.socketpair(),
    "interfaces": lambda: socket.if_nameindex(),
    "address": lambda: socket.getaddrinfo("127.0.0.1", 80),
    "memfd": lambda: os.memfd_create("card"),
    "thread": lambda: threading.Thread(target=int).start(),
    "tcp": lambda: socket.create_connection(("127.0.0.1", port)),
    "listen": lambda: socket.create_server(("127.0.0.1", 0)),
    "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "netfilter": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12),
    "fork": lambda: os.fork(),
    "program": lambda: subprocess.run(["true"]),
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
}
"""

NEEDED = {"udp", "unix", "interfaces", "address", "memfd", "thread"}


@contextmanager
def listener() -> Iterator[int]:
    """A TCP server that would take a connection; gives its port."""
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_what_a_card_needs_is_allowed_and_the_rest_denied(tmp_path: Path) -> None:
    with listener() as port:
        found = found_in(
            CALLS
            + """
            port = int(sys.argv[2])
            before = {name: tried(call) for name, call in calls.items() if name not in ("fork", "raw", "packet")}
            applied = confine(landlock_write=[Path(sys.argv[1])])
            print(json.dumps([before, applied, {name: tried(call) for name, call in calls.items()}]))
            """.replace("            ", ""),
            tmp_path,
            port,
        )
    before, applied, after = found
    assert set(before.values()) == {"done"}
    assert {name for name, result in after.items() if result == "done"} == NEEDED
    assert {after[name] for name in after.keys() - NEEDED} == {"Operation not permitted"}
    assert [line.split()[0] for line in applied] == [
        "no",
        "no",
        "Landlock" if landlock.abi() else "Landlock:",
        "seccomp:",
    ]


@needs_landlock
def test_tcp_listeners_may_be_left_and_still_nothing_connects(tmp_path: Path) -> None:
    with listener() as port:
        found = found_in(
            CALLS
            + """
            port = int(sys.argv[2])
            confine(landlock_write=[Path(sys.argv[1])], tcp_sockets=True)
            fast = lambda: socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", port))
            calls["fast open"] = fast
            calls["mptcp"] = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", port))
            print(json.dumps({name: tried(call) for name, call in calls.items()}))
            """.replace("            ", ""),
            tmp_path,
            port,
        )
    assert {name for name, result in found.items() if result == "done"} == NEEDED | {"listen"}
    assert found["tcp"] == "Permission denied"
    assert found["fast open"] == found["mptcp"] == "Operation not permitted"


@needs_landlock
def test_files_are_written_beneath_the_directories_only(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (elsewhere / "old").write_text("old")
    (run / "old").write_text("old")
    found = found_in(
        """
        run, elsewhere = map(Path, sys.argv[1:])
        confine(landlock_write=[run])
        def uses(place):
            return {
                "write": tried(lambda: (place / "new").write_text("new")),
                "change": tried(lambda: (place / "old").write_text("changed")),
                "socket": tried(lambda: socket.socket(socket.AF_UNIX).bind(str(place / "s"))),
                "make": tried(lambda: (place / "dir").mkdir()),
                "link": tried(lambda: (place / "link").symlink_to("/")),
                "read": tried(lambda: (place / "old").read_text()),
                "remove": tried(lambda: (place / "old").unlink()),
                "null": tried(lambda: Path("/dev/null").write_text("x")),
            }
        answers = [uses(run), uses(elsewhere)]
        answers.append(tried(lambda: (run / "new").rename(elsewhere / "new")))
        for each in run.iterdir():
            each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
        answers.append(tried(run.rmdir))
        print(json.dumps(answers))
        """,
        run,
        elsewhere,
    )
    assert set(found[0].values()) == {"done"}
    assert {name for name, result in found[1].items() if result == "done"} == {"read", "null"}
    assert found[2] != "done"
    assert found[3] == "done"
    assert (elsewhere / "old").read_text() == "old"


@needs_landlock
def test_signals_to_others_are_denied(tmp_path: Path) -> None:
    if landlock.abi() < 6:
        pytest.skip("this kernel's Landlock has no scopes")
    found = found_in(
        """
        confine(landlock_write=[Path(sys.argv[1])])
        print(json.dumps([tried(lambda: os.kill(os.getppid(), 0)), tried(lambda: os.kill(os.getpid(), 0))]))
        """,
        tmp_path,
    )
    assert found == ["Operation not permitted", "done"]


def test_threads_that_run_already_are_filtered_too_and_landlock_says_that_it_cannot(tmp_path: Path) -> None:
    found = found_in(
        """
        go, answers = threading.Event(), []
        thread = threading.Thread(target=lambda: (go.wait(), answers.append(tried(socket.socket))))
        thread.start()
        applied = confine(landlock_write=[Path(sys.argv[1])])
        go.set()
        thread.join()
        print(json.dumps([applied, answers]))
        """,
        tmp_path,
    )
    assert found[1] == ["Operation not permitted"]
    assert not landlock.abi() or "1 threads that had started before are not bound" in found[0][2]


def test_confinement_outlives_a_replaced_program_and_can_be_applied_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        PRELUDE
        + textwrap.dedent(
            """
            lines = confine(landlock_write=[Path(sys.argv[1])])
            left = int(sys.argv[2])
            if left:
                os.execv(sys.executable, [sys.executable, sys.argv[0], sys.argv[1], str(left - 1)])
            print(json.dumps([lines, tried(socket.socket), tried(os.fork)]))
            """
        )
    )
    done = run_to_end(
        [sys.executable, str(program), str(tmp_path), "20"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=True,
    )
    lines, *tries = json.loads(done.stdout)
    assert tries == ["Operation not permitted"] * 2
    assert not landlock.abi() or lines[2].startswith("Landlock: the 16 layers of this process are in use")


def test_missing_directory_is_one_line(tmp_path: Path) -> None:
    if not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    found = found_in(
        """
        print(json.dumps(tried(lambda: confine(landlock_write=[Path(sys.argv[1])]))))
        """,
        tmp_path / "none",
    )
    assert found == f"{tmp_path}/none: cannot be opened: No such file or directory; make the directory before"


def test_machine_without_a_table_is_reported(tmp_path: Path) -> None:
    found = found_in(
        """
        import nitro_emu.trust.confinement as tested
        class Name:
            machine = "riscv64"
        tested.os.uname = Name
        print(json.dumps(confine(landlock_write=[Path(sys.argv[1])])[-1]))
        """,
        tmp_path,
    )
    assert found == "seccomp: there is no table of system calls for riscv64, so none is denied"


def test_kernel_without_landlock_is_reported_and_tcp_sockets_are_refused_then() -> None:
    found = found_in(
        """
        from nitro_emu.trust import landlock
        landlock.abi = lambda: 0
        refused = tried(lambda: confine(landlock_write=[], tcp_sockets=True))
        print(json.dumps([refused, tried(lambda: socket.socket().close()), confine(landlock_write=[])[2]]))
        """
    )
    assert "no Landlock for the network" in found[0]
    assert found[1] == "done"
    assert found[2] == "Landlock: this kernel has none, so files and TCP connects are not limited by it"


# -- another process and its memory --------------------------------------------------------------------------------

CONFINED = """
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
libc = ctypes.CDLL(None)
libc.prctl(4, ctypes.c_ulong(1), 0, 0, 0)  # PR_SET_DUMPABLE, which setuid has taken away
libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)  # PR_SET_PTRACER_ANY: Yama does not protect it
secret = ctypes.create_string_buffer(b"the tenant's bytes")
if sys.argv[2] == "confined":
    confine(landlock_write=[])
print(json.dumps([os.getpid(), ctypes.addressof(secret)]), flush=True)
sys.stdin.read()
"""

ATTACK = """
uid, pid, address = map(int, sys.argv[1:])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
libc = ctypes.CDLL(None, use_errno=True)
def memory():
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        file.seek(address)
        if file.read(18) != b"the tenant's bytes":
            raise OSError(5, "nothing")
def vector():
    class Iov(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    into = ctypes.create_string_buffer(18)
    mine, theirs = Iov(ctypes.addressof(into), 18), Iov(address, 18)
    if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) != 18:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def attach():
    if libc.ptrace(16, pid, None, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, None, None)
def descriptors():
    os.listdir(f"/proc/{pid}/fd")
names = {"memory": memory, "vector": vector, "attach": attach, "descriptors": descriptors}
print(json.dumps({name: tried(call) for name, call in names.items()}))
"""


@contextmanager
def victim(how: str) -> Iterator[tuple[int, int]]:
    """A process of the card's user; gives its pid, and the address of what others may not read."""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + CONFINED, str(CARD_UID), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            pid, address = json.loads(process.stdout.readline())
            yield pid, address
        finally:
            process.kill()


def test_attack_works_on_a_process_that_is_not_confined() -> None:
    with victim("open") as (pid, address):
        assert set(found_in(ATTACK, CARD_UID, pid, address).values()) == {"done"}


@pytest.mark.parametrize("uid", [CARD_UID, pytest.param(OTHER_UID, marks=needs_root)])
def test_memory_of_a_confined_process_cannot_be_read(uid: int) -> None:
    with victim("confined") as (pid, address):
        found = found_in(ATTACK, uid, pid, address)
    assert found.keys() == {"memory", "vector", "attach", "descriptors"}
    assert set(found.values()) <= {"Permission denied", "Operation not permitted"}


@pytest.mark.parametrize(("how", "dumpable"), [("open", True), ("confined", False)])
def test_kernel_makes_no_core_dump_of_it(how: str, *, dumpable: bool) -> None:
    with victim(how) as (pid, _):
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="utf-8")
        owner = Path(f"/proc/{pid}/environ").stat().st_uid
        core = re.search(r"Max core file size +(\d+|unlimited) +(\d+|unlimited)", limits)
        assert core is not None
        uid = CARD_UID if os.geteuid() == 0 else os.geteuid()
        if dumpable:
            assert owner == uid
        else:
            assert core.groups() == ("0", "0")
            assert owner == 0  # the kernel gives the files of a process that is not dumpable to root

"""Run a command under User-Mode Linux: a kernel with netem, run as a process, for hosts whose kernel has none.

Theory of operation. `linux.uml` (Debian: user-mode-linux) is a Linux kernel that runs as an ordinary process. Its root
is the host's own file system (hostfs), so programs, the project and its virtual environment have the same paths as
outside, and files that the command writes remain. Everything else belongs to the guest: its processes, its /run, /dev
and /proc, its network, which has no connection to the outside, and therefore its labs. It boots in seconds, has one CPU
and slow system calls: use it to test what netem does, not how fast.

The command's standard output and error are two consoles of the guest, connected to the caller's; its standard input is
empty. The kernel's messages go to a file; if a boot fails, the error quotes it. The guest ends with the caller, however
that ends: a guardian process starts the kernel, holds the other end of a pipe, and kills the guest's process group when
the caller's end is closed. (PR_SET_PDEATHSIG would signal the kernel, but not the helper processes that it starts.)
The kernel (6.1) sometimes crashes in its first second, before it runs anything: then it is booted again.

The kernel switches between its processes with ptrace. Its buffer for their vector registers holds 2,696 bytes, all that
AVX-512 needs. On a CPU with AMX a host since Linux 5.16 refuses to set so few (PTRACE_SETREGSET), and the guest cannot
start its first process. There the kernel is run with a library before libc, compiled when it is needed, that completes
the request with the registers as they are: the guest's processes may use all registers but AMX's.

No root is needed outside: the guest's root may access the files that the caller may access.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, Final

from netns.backends.kernel.netlink import run_tool
from netns.base.progress import Estimate, Progress
from netns.errors import BackendError
from netns.programs import tool

KERNEL: Final = "linux.uml"
MODULES: Final = Path("/usr/lib/uml/modules")
LOADED: Final = ("crc-ccitt", "ipv6", "veth", "tun", "sch_netem", "sch_tbf", "sch_fq", "sch_fq_codel", "tcp_bbr")
MEMORY_BYTES: Final = 2 << 30
BOOTS: Final = 4
BOOT_S: Final = {"the kernel starts": 2.0, "its modules are loaded": 1.0}
"""What a boot does, and how long each takes, about: measured on one of two busy cores."""
LOOK_S: Final = 0.1
"""Between two looks at how far the boot is: the guest has nothing but files to say it."""

_INIT: Final = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run; mkdir -p /run/netns
mount -t devtmpfs dev /dev 2>/dev/null; mkdir -p /dev/net /dev/shm; mount -t tmpfs shm /dev/shm
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
ln -sfn /proc/self/fd /dev/fd
ip link set lo up
touch {started}
for name in {modules}; do
  file=$(find {tree}/"$(uname -r)" -name "$name.ko" -print -quit)
  [ -z "$file" ] || insmod "$file"
done
touch {begun}
stty raw -echo </dev/tty1; stty raw -echo </dev/tty2
{exports}
cd {directory} && {command} </dev/null >/dev/tty1 2>/dev/tty2
echo $? >{status}
sync; halt -f -p
"""


_GUARDIAN: Final = """
import contextlib, os, select, shutil, signal, subprocess, sys
state, *kernel = sys.argv[1:]
guest = subprocess.Popen(kernel, stdin=subprocess.DEVNULL, close_fds=False, start_new_session=True)
caller, ended = 0, os.pidfd_open(guest.pid)
ready, _, _ = select.select([caller, ended], [], [])
with contextlib.suppress(ProcessLookupError):
    os.killpg(guest.pid, signal.SIGKILL)
guest.wait()
if caller in ready and not os.read(caller, 1):
    shutil.rmtree(state, ignore_errors=True)
"""
"""Runs the kernel; kills it and what it has started when the kernel or the caller ends.

Its standard input is a pipe from the caller. A byte means that the caller was interrupted; the end of the file, that it
was killed: then the guardian also removes the state.
"""


_WHOLE_REGISTER_SETS: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long ptrace_function(enum __ptrace_request, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
    static char registers[1 << 16];
    static ptrace_function *next;
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!next)
        next = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
        struct iovec *given = data, whole = {registers, sizeof registers};
        if (next(PTRACE_GETREGSET, pid, address, &whole))
            return -1;
        if (given->iov_len < whole.iov_len) {
            memcpy(registers, given->iov_base, given->iov_len);
            return next(request, pid, address, &whole);
        }
    }
    return next(request, pid, address, data);
}
"""


def run_uml(
    command: Sequence[str],
    *,
    memory_bytes: int = MEMORY_BYTES,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    repeatable: bool = False,
    is_shown: bool = False,
) -> int:
    """Boot a guest, run `command` in the working directory, power off; return the command's exit status.

    Output goes to the caller's own unless `stdout` and `stderr` are given; `environment` defaults to the caller's.
    `repeatable`: the command may be started again if the kernel crashes while it runs. `is_shown`: stderr shows how far
    the boot is. Raises BackendError if the command did not run to its end.
    """
    kernel = _kernel()
    environment = os.environ if environment is None else environment
    with tempfile.TemporaryDirectory(prefix="srd-lab-uml-") as name:
        state = Path(name)
        init = state / "init"
        init.write_text(_init(command, state=state, environment=environment))
        init.chmod(0o755)
        preload = _compile_register_sets(state) if _has_amx() else None
        for boot in range(BOOTS):
            (state / "started").unlink(missing_ok=True)
            shown = Progress(
                f"srd-lab: booting {KERNEL}{' again' * bool(boot)}",
                BOOT_S,
                estimate=Estimate(BOOT_S),
                is_counted=False,
                is_plain=False,
                stream=None if is_shown else io.StringIO(),
            )
            shown.at(next(iter(BOOT_S)))
            with (state / "boot.log").open("wb") as log, shown:
                _boot(
                    kernel,
                    init=init,
                    memory_bytes=memory_bytes,
                    preload=preload,
                    log=log,
                    stdout=stdout,
                    stderr=stderr,
                    shown=shown,
                )
            if (state / "status" if repeatable else state / "begun").exists():
                break
        try:
            return int((state / "status").read_text())
        except (OSError, ValueError):
            log_text = (state / "boot.log").read_text(errors="replace")
            raise BackendError(f"the User-Mode Linux kernel did not run the command: {_error_line(log_text)}") from None


def missing_uml() -> str | None:
    """Return which program a guest needs that is not installed, and its package; None if there is none."""
    try:
        _kernel()
        if _has_amx():
            tool("cc")
    except BackendError as error:
        return str(error)
    return None


def _error_line(log: str) -> str:
    """Return the error of a kernel that failed: the first panic or error line, or else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    panics = [line for line in lines if "panic" in line or "No such" in line or "rror" in line]
    return (panics or lines or ["nothing"])[-1 if not panics else 0]


def _kernel() -> str:
    path = shutil.which(KERNEL)
    if path is None:
        raise BackendError(f"{KERNEL}: not installed; install the package user-mode-linux")
    tool("insmod")
    return path


def _has_amx() -> bool:
    return "amx_tile" in Path("/proc/cpuinfo").read_text().split()


def _compile_register_sets(directory: Path) -> Path:
    """Compile the library that the kernel needs on a CPU with AMX."""
    source, library = directory / "registers.c", directory / "registers.so"
    source.write_text(_WHOLE_REGISTER_SETS)
    run_tool("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source))
    return library


def _init(command: Sequence[str], *, state: Path, environment: Mapping[str, str]) -> str:
    exports = (f"export {key}={shlex.quote(value)}" for key, value in environment.items() if key.isidentifier())
    return _INIT.format(
        modules=" ".join(LOADED),
        tree=shlex.quote(str(MODULES)),
        exports="\n".join(exports),
        directory=shlex.quote(str(Path.cwd())),
        command=shlex.join(command),
        started=shlex.quote(str(state / "started")),
        begun=shlex.quote(str(state / "begun")),
        status=shlex.quote(str(state / "status")),
    )


def _boot(
    kernel: str,
    *,
    init: Path,
    memory_bytes: int,
    preload: Path | None,
    log: IO[bytes],
    stdout: IO[bytes] | None,
    stderr: IO[bytes] | None,
    shown: Progress,
) -> None:
    """Run the guest to its end. It is killed when this process ends or the wait is interrupted.

    The kernel waits for its consoles with epoll, which does not support regular files: so they are pipes.
    """
    pipes = [os.pipe() for _ in range(2)]
    (_, out_fd), (_, err_fd) = pipes
    consoles = (f"con1=null,fd:{out_fd}", f"con2=null,fd:{err_fd}", "con0=null,fd:1", "con=null", "ssl=null")
    root = ("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"init={init}", f"mem={memory_bytes >> 20}M")
    lifeline, hold = os.pipe()
    guardian = subprocess.Popen(
        [sys.executable, "-S", "-c", _GUARDIAN, str(init.parent), kernel, *root, *consoles],
        stdin=lifeline,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=os.environ | ({} if preload is None else {"LD_PRELOAD": str(preload)}),
        pass_fds=(out_fd, err_fd),
        start_new_session=True,
    )
    for fd in (lifeline, out_fd, err_fd):
        os.close(fd)
    sinks = (stdout or sys.stdout.buffer, stderr or sys.stderr.buffer)
    pumps = [
        Thread(target=_pump, args=(source_fd, sink), kwargs={"on_first": shown.stop})
        for (source_fd, _), sink in zip(pipes, sinks, strict=True)
    ]
    try:
        for pump in pumps:
            pump.start()
        _show_boot(guardian, state=init.parent, shown=shown)
        guardian.wait()
    finally:
        with suppress(BrokenPipeError):  # the guardian has ended
            os.write(hold, b"x")
        os.close(hold)
        guardian.wait()
        for pump in pumps:
            pump.join()


def _show_boot(guardian: subprocess.Popen[bytes], *, state: Path, shown: Progress) -> None:
    """Show how far the boot is, until the command begins, or the guest has ended."""
    for part, reached in zip(BOOT_S, ("started", "begun"), strict=True):
        shown.at(part)
        while not (state / reached).exists():
            with suppress(subprocess.TimeoutExpired):
                guardian.wait(LOOK_S)
                return
        shown.end(part)
    shown.stop()


def _pump(source_fd: int, sink: IO[bytes], *, on_first: Callable[[], None]) -> None:
    """Copy until the guest closes its end; `on_first` is called before anything is copied."""
    with open(source_fd, "rb", buffering=0) as source:
        while chunk := source.read(1 << 16):
            on_first()
            sink.write(chunk)
            sink.flush()

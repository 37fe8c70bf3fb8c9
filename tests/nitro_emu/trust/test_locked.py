"""nitro_emu.trust.locked: where the bytes are, and that they go."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust.locked import LockedSecret
from tests.programs import run_to_end


def flags_of(secret: LockedSecret) -> set[str]:
    """The flags of the mapping that has the secret, as the kernel shows them."""
    first = ctypes.addressof(ctypes.c_char.from_buffer(secret.view))
    within = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            within = int(found[1], 16) <= first < int(found[2], 16)
        elif within and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    raise AssertionError("the mapping is not there")


def test_bytes_are_zero_writable_and_of_the_size() -> None:
    with LockedSecret(32) as secret:
        assert bytes(secret.view) == bytes(32)
        secret.view[:] = bytes(range(32))
        assert bytes(secret.view) == bytes(range(32))


def test_kernel_locks_them_and_leaves_them_out_of_dumps_and_children() -> None:
    with LockedSecret(3 * mmap.PAGESIZE) as secret:
        assert {"lo", "dd", "wf"} <= flags_of(secret)


def test_end_wipes_the_bytes_also_for_who_still_has_a_part_of_them() -> None:
    secret = LockedSecret(32)
    secret.view[:] = b"k" * 32
    part = memoryview(secret.view)[8:16]
    assert bytes(part) == b"k" * 8
    secret.close()
    assert bytes(part) == bytes(8)
    with pytest.raises(TrustError, match="has been wiped"):
        _ = secret.view
    secret.close()


def test_forked_child_finds_zeros() -> None:
    with LockedSecret(32) as secret:
        secret.view[:] = b"k" * 32
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.write(writer, bytes(secret.view))
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 32) == bytes(32)
        os.close(reader)
        os.close(writer)


def test_no_bytes_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="0 bytes are no secret"):
        LockedSecret(0)


def test_memory_that_cannot_be_locked_is_an_error_with_a_remedy() -> None:
    program = (
        "import os, resource\n"
        "from nitro_emu.errors import TrustError\n"
        "from nitro_emu.trust.locked import LockedSecret\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))\n"
        "os.geteuid() or os.setuid(65534)\n"
        "try: LockedSecret(32)\n"
        "except TrustError as error: print(error)\n"
    )
    done = run_to_end([sys.executable, "-c", program], check=True)
    assert re.fullmatch(
        r"a secret's 32 bytes cannot be locked in memory \(.+; the limit is 0 bytes\); raise it with ulimit -l or, for "
        r"systemd, LimitMEMLOCK=\n",
        done.stdout,
    ), done.stdout + done.stderr

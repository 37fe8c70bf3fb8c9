"""A region: memory for payload that other processes, NumPy, torch and a GPU use in place.

1. A region is a shared mapping of a memfd (which has no name, and is freed with its last user), of a file on disk, or
   of a descriptor that another process has sent. Processes that map the same memory see each other's writes at once.
2. It is an `mmap.mmap` and so supports the buffer protocol: `memoryview`, `np.asarray`, `torch.frombuffer`, `readinto`
   and the like need no copy, and prevent the mapping from being closed while they exist. DLPack uses NumPy's
   implementation, so the same holds for `np.from_dlpack` and `torch.from_dlpack`.
3. A memfd created here is sealed so that other processes cannot shrink it (F_SEAL_SHRINK, fcntl(2)), as an access
   beyond its end would kill this process (SIGBUS). A file on disk cannot be sealed; it must not be shortened while it
   is mapped.
4. Read-only memory is mapped with PROT_READ only, because not all libraries respect DLPack's read-only flag.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from devmem.errors import RegionError

POPULATE_READ, POPULATE_WRITE = 22, 23
"""Advice of `madvise(2)` since Linux 5.14; Python's `mmap` has no names for them yet."""
_GREETING = b"R"  # a descriptor has to be sent with at least one byte (unix(7))


def memory_bytes() -> int:
    """Return the size of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


def huge_page_bytes() -> int:
    """Return the size of the kernel's default huge page; 0 if it has none."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("Hugepagesize:"):
            return int(line.split()[1]) << 10
    return 0


class Region(mmap.mmap):
    """`size_bytes` of zeroed, page-aligned, shared memory. A context manager.

    `array` is all of it as bytes; `address` is its address in this process, for the kernel's iovecs; `fd` is the
    descriptor that another process can map; `writable` is whether this process may write. `from_fd`, `open` and
    `receive` map existing memory.

    Raises RegionError when the memory cannot be allocated, and on `close` while views exist.
    """

    size_bytes: int
    fd: int
    writable: bool
    address: int
    _release_fd: Callable[[], object]

    def __new__(cls, size_bytes: int, *, name: str = "srd-region", huge_pages: bool = False) -> Self:
        """Create a memfd of whole pages. Huge pages cause fewer TLB misses and must be reserved beforehand."""
        if size_bytes <= 0:
            raise RegionError(f"size: {size_bytes} bytes is no region; give at least one page ({mmap.PAGESIZE})")
        if size_bytes > memory_bytes():
            raise RegionError(f"size: {size_bytes} bytes is more than this machine's memory ({memory_bytes()})")
        page_bytes = huge_page_bytes() if huge_pages else mmap.PAGESIZE
        if not page_bytes:
            raise RegionError("huge_pages: this kernel has none; leave them out")
        size_bytes = -(-size_bytes // page_bytes) * page_bytes
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | (os.MFD_HUGETLB if huge_pages else 0)
        fd = os.memfd_create(name, flags)
        try:
            os.ftruncate(fd, size_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return cls._over(fd, size_bytes=size_bytes, offset=0, writable=True)
        except (OSError, OverflowError, ValueError) as error:
            os.close(fd)
            remedy = f"; reserve {size_bytes // page_bytes} pages: sysctl vm.nr_hugepages" if huge_pages else ""
            raise RegionError(f"size: {size_bytes} bytes cannot be mapped: {error}{remedy}") from error

    @classmethod
    def from_fd(cls, fd: int, *, size_bytes: int | None = None, offset: int = 0, writable: bool = True) -> Self:
        """Map a descriptor's memory from `offset`, by default to its end. The descriptor is duplicated, not taken over.

        Raises RegionError if it is closed, cannot be mapped (as writable), or has fewer bytes.
        """
        if offset < 0 or offset % mmap.ALLOCATIONGRANULARITY:
            raise RegionError(f"offset: {offset} is no multiple of {mmap.ALLOCATIONGRANULARITY}, a page; round it down")
        try:
            status = os.fstat(fd)
        except (OSError, OverflowError) as error:
            raise RegionError(f"fd: {fd} cannot be mapped: {error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise RegionError(f"fd: {fd} is neither a memfd nor a file, and cannot be mapped")
        left_bytes = status.st_size - offset
        wanted_bytes = left_bytes if size_bytes is None else size_bytes
        if not 0 < wanted_bytes <= left_bytes:
            raise RegionError(f"size: {wanted_bytes} bytes from {offset} on are not in a file of {status.st_size}")
        own = os.dup(fd)
        try:
            return cls._over(own, size_bytes=wanted_bytes, offset=offset, writable=writable)
        except (OSError, OverflowError, ValueError) as error:
            os.close(own)
            remedy = "; map it with writable=False" if isinstance(error, PermissionError) and writable else ""
            raise RegionError(f"fd: {fd} cannot be mapped: {error}{remedy}") from error

    @classmethod
    def open(cls, path: Path, *, size_bytes: int | None = None, writable: bool = False) -> Self:
        """Map a file's pages in the page cache, read-only by default. If `writable`, extend the file to `size_bytes`.

        Raises RegionError for a file that cannot be opened, is empty or too short, or cannot be extended.
        """
        flags = (os.O_RDWR | (os.O_CREAT if size_bytes else 0)) if writable else os.O_RDONLY
        try:
            fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
        except (OSError, ValueError) as error:
            raise RegionError(f"{path}: cannot be opened: {error}") from error
        try:
            if writable and size_bytes is not None and os.fstat(fd).st_size < size_bytes:
                os.posix_fallocate(fd, 0, size_bytes)  # writing to a hole on a full disk would raise SIGBUS
            return cls.from_fd(fd, size_bytes=size_bytes, writable=writable)
        except (OSError, OverflowError) as error:
            raise RegionError(f"{path}: cannot be made {size_bytes} bytes long: {error}") from error
        except RegionError as error:
            raise RegionError(f"{path}: {error}") from error
        finally:
            os.close(fd)

    @classmethod
    def receive(cls, sock: socket.socket, *, writable: bool = True) -> Self:
        """Map the memory that the other end of a Unix socket shares. Raises OSError, or RegionError without one."""
        _, fds, _, _ = socket.recv_fds(sock, len(_GREETING), 1)
        if not fds:
            raise RegionError("the other process sent no descriptor; it has to call share")
        try:
            return cls.from_fd(fds[0], writable=writable)
        finally:
            for fd in fds:
                os.close(fd)

    def share(self, sock: socket.socket, *, writable: bool = True) -> None:
        """Send the descriptor over a Unix socket; without `writable` the other process cannot map it for writing."""
        if writable:
            socket.send_fds(sock, [_GREETING], [self.fd])
            return
        read_only = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            socket.send_fds(sock, [_GREETING], [read_only])
        finally:
            os.close(read_only)

    @classmethod
    def _over(cls, fd: int, *, size_bytes: int, offset: int, writable: bool) -> Self:
        """Map `fd` and take it over. Raises OSError, OverflowError, ValueError."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self = super().__new__(cls, fd, size_bytes, mmap.MAP_SHARED, protection, offset=offset)
        self.size_bytes, self.fd, self.writable = size_bytes, fd, writable
        self.address = int(self.array.ctypes.data)
        self._release_fd = weakref.finalize(self, os.close, fd)  # also for a region that is never closed
        return self

    # -- access, without a copy -------------------------------------------------------------------------------------

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """All bytes. A new array each time, because an array that is kept prevents `close`."""
        return np.frombuffer(self, np.uint8)

    def view(self, offset: int, *, length: int) -> memoryview:
        """Return `length` bytes from `offset`. Raises RegionError when out of bounds."""
        if self.fd < 0:
            raise RegionError("the region is closed; views are to be taken before")
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise RegionError(f"bytes {offset} to {offset + length} are not within a region of {self.size_bytes}")
        return memoryview(self)[offset : offset + length]

    def tensor(self, shape: int | tuple[int, ...], *, dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
        """Return elements of `dtype` from `offset` (bytes), in C order. Raises RegionError: outside, not aligned."""
        kind = np.dtype(dtype)
        if offset % kind.alignment:
            raise RegionError(f"offset: {offset} is not aligned for {kind} ({kind.alignment} bytes); move it")
        length = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return np.frombuffer(self.view(offset, length=length), kind).reshape(shape)

    def populate(self, offset: int, *, length: int) -> None:
        """Allocate the memory of `length` bytes from `offset` now, instead of page by page at the first access.

        Kernels before 5.14 cannot; there this has no effect. Raises RegionError: out of bounds, no memory left.
        """
        with self.view(offset, length=length):
            start = offset - offset % mmap.PAGESIZE
            try:
                self.madvise(POPULATE_WRITE if self.writable else POPULATE_READ, start, offset + length - start)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise RegionError(f"no memory for bytes {offset} to {offset + length}: {error.strerror}") from error

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array protocol, version 3. A pointer taken out of it by hand does not prevent `close`."""
        return dict(self.array.__array_interface__)

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule of all bytes; `options` as in the array API standard."""
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device of the memory: the host (kDLCPU)."""
        kind, number = self.array.__dlpack_device__()
        return int(kind), number

    # -- lifecycle --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmap the memory. Raises RegionError while a view or a request uses it."""
        if self.fd < 0:
            return
        try:
            super().close()
        except BufferError as error:
            raise RegionError("the region has live views, or requests in flight; let these end first") from error
        self._release_fd()
        self.fd = -1

    def __repr__(self) -> str:
        return f"<Region of {self.size_bytes} bytes{', closed' if self.fd < 0 else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

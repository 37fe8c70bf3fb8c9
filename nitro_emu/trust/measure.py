"""What is measured of a card: the files that serve it, its configuration, and the environment that runs them.

    files = image_files(root)                  # {"srd/engine.py": SHA-384 ...}
    pcr = extend(ZERO, image_digest(files))

Rules.
1. A measurement is a SHA-384 hash, 48 bytes. A register (PCR) starts as zeros, and a measurement is added by `extend`.
2. The image is every file that Python may load from the card's packages: sources, compiled modules, and bytecode that
   has no source. Bytecode in `__pycache__`, which is used in place of the source that it names, comes and goes. So it
   is not measured, and a card loads none (`nitro_emu.trust.loaded`).
3. Paths come from others. Only regular files of bounded size are read, symbolic links within an image are refused, and
   nothing that is opened can block.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from nitro_emu.errors import TrustError

DIGEST_BYTES: Final = 48
"""Of SHA-384."""

ZERO: Final = bytes(DIGEST_BYTES)
"""A register before anything was added to it."""

MEASURED_PACKAGES: Final = ("devmem", "netns", "nitro_emu", "srd")
"""Directories of an image whose files are measured. `nitro_emu.trust.loaded` sees to it that no others are loaded."""

MEASURED_SUFFIXES: Final = (".py", ".pyc", ".so")
"""Of the files that Python loads code from."""

MAX_FILES: Final = 10_000
MAX_ENTRIES: Final = 100_000
"""Names that are looked at in an image, measured or not."""

MAX_DEPTH: Final = 32
"""Directories within each other."""

MAX_FILE_BYTES: Final = 256 << 20
"""Of one file: several times the largest compiled module."""

MAX_IMAGE_BYTES: Final = 1 << 30

MAX_CONFIGURATION_BYTES: Final = 4 << 20
"""As much as `netns.base.yaml_file` reads."""

_COMPILED_GROUP: Final = "__mypyc."
"""In the name of what mypyc puts beside the packages: the code of all compiled modules, which only load it."""

_BLOCK_BYTES: Final = 1 << 20
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A FIFO without a writer blocks otherwise."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The interpreter and the installed distributions."""

    digest: bytes
    """SHA-384 of the interpreter's version and of each distribution's name==version, sorted, one a line."""

    description: str
    """For people: interpreter and number of distributions."""


def extend(pcr: bytes, data_digest: bytes) -> bytes:
    """Return a register after a measurement was added: SHA-384 over the old value and the measurement."""
    return hashlib.sha384(pcr + data_digest).digest()


def software_root() -> Path:
    """Return the directory of the packages that this process runs."""
    return Path(__file__).resolve().parent.parent.parent


def image_sha384(root: Path | None = None) -> bytes:
    """Return the measurement of an image, 48 bytes. Raises TrustError, as `image_files` does.

    `root`: the directory of the packages; default: that of this process.
    """
    return image_digest(image_files(software_root() if root is None else root))


def image_digest(files: Mapping[str, bytes]) -> bytes:
    """Return the measurement of an image whose files have these hashes: over each name and hash, sorted by name."""
    digest = hashlib.sha384()
    for name in sorted(files):
        digest.update(name.encode(errors="surrogateescape") + b"\0" + files[name])
    return digest.digest()


def image_files(root: Path) -> dict[str, bytes]:
    """Return SHA-384 of each file of an image, by its name relative to `root`, sorted.

    Raises TrustError for an image without files, beyond the bounds above, with a symbolic link where code is loaded
    from, or that cannot be read.
    """
    try:
        files = _Walk(os.fspath(root)).files()
    except OSError as error:
        raise TrustError(f"the image {root} cannot be read: {error.strerror}; give the packages' directory") from error
    if not files:
        raise TrustError(f"the image {root} has no files of {', '.join(MEASURED_PACKAGES)}; give their directory")
    return dict(sorted(files.items()))


def file_sha384(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return SHA-384 of a regular file. Raises TrustError if it is none, has more bytes, or cannot be read."""
    return hashlib.sha384(read_file(path, max_bytes=max_bytes)).digest()


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises TrustError if it is none, has more bytes, or cannot be read."""
    try:
        descriptor = os.open(path, _FILE_FLAGS)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise TrustError(f"{path} cannot be read: {reason}; name another file") from error
    content = bytearray()
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TrustError(f"{path} is no regular file; name one")
        while block := os.read(descriptor, min(_BLOCK_BYTES, max_bytes + 1 - len(content))):
            content += block
    except OSError as error:
        raise TrustError(f"{path} cannot be read: {error.strerror}; name another file") from error
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise TrustError(f"{path} has more than {max_bytes} bytes; name the right file")
    return bytes(content)


def environment() -> Environment:
    """Measure the interpreter and the distributions that this process finds."""
    found = {_distribution_line(item.name, item.version) for item in distributions()}
    interpreter = f"{sys.implementation.name} {sys.version.split()[0]}"
    text = "\n".join([interpreter, *sorted(found)]) + "\n"
    return Environment(
        digest=hashlib.sha384(text.encode()).digest(),
        description=f"{interpreter}, {len(found)} distributions",
    )


def _distribution_line(name: str | None, version: str | None) -> str:
    """Return name==version with the name as PyPI normalises it; damaged metadata has neither."""
    return f"{re.sub(r'[-_.]+', '-', name or '?').lower()}=={version or '?'}"


class _Walk:
    """One measurement of an image, by descriptors of directories, so that no link is followed on the way."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._found: dict[str, bytes] = {}
        self._entries = 0
        self._bytes = 0

    def files(self) -> dict[str, bytes]:
        """Return the hash of each file by its name."""
        root = os.open(self._root, _DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        try:
            for name in self._names(root):
                if name in MEASURED_PACKAGES:
                    self._package(root, name)
                elif is_measured(name):
                    self._file(root, name, shown=name)
        finally:
            os.close(root)
        return self._found

    def _names(self, directory: int) -> Iterator[str]:
        with os.scandir(directory) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    raise TrustError(f"the image {self._root} has more than {MAX_ENTRIES} files; give the packages'")
                yield entry.name

    def _package(self, parent: int, name: str) -> None:
        """Measure what is below a directory; a stack, so that depth is bounded by what is said here."""
        directories = [(os.open(name, _DIRECTORY_FLAGS, dir_fd=parent), name)]
        try:
            while directories:
                directory, prefix = directories.pop()
                try:
                    for entry in self._names(directory):
                        self._entry(directory, entry, shown=f"{prefix}/{entry}", directories=directories)
                finally:
                    os.close(directory)
        finally:
            for directory, _ in directories:
                os.close(directory)

    def _entry(self, directory: int, name: str, *, shown: str, directories: list[tuple[int, str]]) -> None:
        """Measure a file, if it is code, or open a directory."""
        if name == "__pycache__":
            return
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if shown.count("/") > MAX_DEPTH:
                raise TrustError(f"the image {self._root} is deeper than {MAX_DEPTH} directories; give the packages'")
            directories.append((os.open(name, _DIRECTORY_FLAGS, dir_fd=directory), shown))
            return
        if stat.S_ISLNK(mode) and _leads_to_code(name, directory):
            raise TrustError(f"{shown} is a symbolic link; an image has regular files only: install it with copies")
        if name.endswith(MEASURED_SUFFIXES):
            self._file(directory, name, shown=shown)

    def _file(self, directory: int, name: str, *, shown: str) -> None:
        if len(self._found) >= MAX_FILES:
            raise TrustError(f"the image {self._root} has more than {MAX_FILES} files of code; give the packages'")
        descriptor = os.open(name, _FILE_FLAGS | os.O_NOFOLLOW, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TrustError(f"{shown} is no regular file; an image has no others: remove it")
            self._found[shown] = self._hash(descriptor, shown=shown)
        finally:
            os.close(descriptor)

    def _hash(self, descriptor: int, *, shown: str) -> bytes:
        digest, size = hashlib.sha384(), 0
        while block := os.read(descriptor, _BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            self._bytes += len(block)
            if size > MAX_FILE_BYTES or self._bytes > MAX_IMAGE_BYTES:
                raise TrustError(f"{shown} makes the image larger than {MAX_IMAGE_BYTES} bytes; remove it")
        return digest.digest()


def is_measured(name: str) -> bool:
    """Whether a file, by its name relative to the image, is one of those that `image_files` measures."""
    package, slash, _ = name.partition("/")
    if not slash:
        return _COMPILED_GROUP in name and name.endswith(".so")
    return package in MEASURED_PACKAGES and name.endswith(MEASURED_SUFFIXES) and "/__pycache__/" not in name


def _leads_to_code(name: str, directory: int) -> bool:
    """Whether Python may load code through a symbolic link: as a file, or as a directory."""
    if name.endswith(MEASURED_SUFFIXES):
        return True
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory).st_mode)
    except OSError:  # it leads nowhere
        return False

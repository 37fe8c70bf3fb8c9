"""The bytecode that Python would load in place of an image's sources, compared with what they compile to.

    check_bytecode(root, files)          # files: of `image_files(root)`; TrustError names the first file that differs

Rules.
1. The sources are those of a signed image: they were compared with the manifest before, since they are compiled here.
2. Bytecode that this interpreter would not load is not looked at: of another version, or of a source that has another
   time or size. Python replaces it.
3. Nothing of the bytecode is unmarshalled. It is equal to `marshal.dumps` of the compiled source, byte for byte, or it
   is read token by token beside the code that is expected, and refused at the first difference. The same code has
   several forms: marshal writes a string once and refers to it, or writes it again, depending on what else was loaded.
4. The name of the source's file in it does not matter: Python sets it when it loads the code.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterator, Mapping
from hashlib import sha384
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import MAX_FILE_BYTES, read_file

_OPTIMISATIONS: Final = ((0, ""), (1, "1"), (2, "2"))
"""Levels of `python -O`, as `compile` and `cache_from_source` name them: a chip does not know the card's."""

_HEADER_BYTES: Final = 16
_REMEDY: Final = "remove the __pycache__ directories of the image"


def check_bytecode(root: Path, files: Mapping[str, bytes]) -> None:
    """Raise TrustError if Python would load bytecode that its source does not compile to.

    `root`: the directory of the packages; `files`: SHA-384 of each measured file by its name, as `image_files` returns
    it. Takes up to 3 ms for each file of bytecode: 1 s for the packages of a card.
    """
    for name in files:
        if name.endswith(".py"):
            for level, path in _cached(os.path.join(root, name)):  # noqa: PTH118 - names may be no UTF-8
                _check(Path(root, name), digest=files[name], cached=path, level=level)


def _cached(source: str) -> Iterator[tuple[int, Path]]:
    """Yield the files in which this interpreter looks for a source's bytecode, if there are any."""
    directory = os.path.join(os.path.dirname(source), "__pycache__")  # noqa: PTH118, PTH120
    for level, optimisation in _OPTIMISATIONS:
        name = os.path.basename(cache_from_source(source, optimization=optimisation))  # noqa: PTH119
        path = os.path.join(directory, name)  # noqa: PTH118 - not where this process has its own cache
        if os.path.lexists(path):
            yield level, Path(path)


def _check(source: Path, *, digest: bytes, cached: Path, level: int) -> None:
    if cached.is_symlink() or cached.parent.is_symlink():
        raise TrustError(f"{cached} is beyond a symbolic link; {_REMEDY}")
    found = read_file(cached, max_bytes=MAX_FILE_BYTES)
    try:
        if not _is_loaded(found, source):
            return
    except OSError as error:
        raise TrustError(f"{source} cannot be read: {error.strerror}; start the card again") from error
    text = read_file(source, max_bytes=MAX_FILE_BYTES)
    if sha384(text).digest() != digest:
        raise TrustError(f"{source} was changed while it was measured; start the card again")
    try:
        code = compile(text, str(source), "exec", dont_inherit=True, optimize=level)
        expected = marshal.dumps(code)  # of a name, as importlib does it: this is usually the same bytes
        is_same = found[_HEADER_BYTES:] == expected or is_same_code(found[_HEADER_BYTES:], expected=expected)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        is_same = False
    if not is_same:
        raise TrustError(f"{cached} is not what {source.name} compiles to; {_REMEDY}")


def _is_loaded(cached: bytes, source: Path) -> bool:
    """Whether this interpreter loads bytecode, by its header; with hashes it may do so without comparing them."""
    if cached[:4] != MAGIC_NUMBER or len(cached) < _HEADER_BYTES:
        return False
    if cached[4:8] != bytes(4):
        return True
    status = source.stat()
    changed_at, size = (int.from_bytes(cached[at : at + 4], "little") for at in (8, 12))
    return changed_at == int(status.st_mtime) & 0xFFFFFFFF and size == status.st_size & 0xFFFFFFFF


# -- marshal ----------------------------------------------------------------------------------------------------

_FLAG_REF: Final = 0x80
_REFERENCE: Final = "r"
_CODE: Final = "c"
_LONG: Final = "l"
_SET: Final = ">"

_FIXED: Final = {"N": 0, "T": 0, "F": 0, ".": 0, "i": 4, "g": 8, "y": 16}
"""Bytes of None, True, False, Ellipsis, and of numbers."""

_TEXTS: Final = {
    "s": (4, "s"),
    "t": (4, "u"),
    "u": (4, "u"),
    "a": (4, "a"),
    "A": (4, "a"),
    "z": (1, "a"),
    "Z": (1, "a"),
}
"""Bytes and texts: the size of their length, and what is read as the same. Whether it is interned does not matter."""

_SEQUENCES: Final = {"(": 4, ")": 1, _SET: 4}
"""The size of their length."""

_CODE_WORDS: Final = 5
_CODE_VALUES: Final = (8, 2)
"""Of CPython 3.11 and later: five numbers, eight values, the number of the first line, two values."""

_FILE_NAME: Final = 5
"""Which of the values is the name of the source's file."""

_MAX_GROWTH: Final = 8
"""What is repeated, and not referred to, makes marshalled code longer, but not so much."""


class _MalformedError(Exception):
    """What is read is no marshalled code."""


def is_same_code(data_untrusted: bytes, *, expected: bytes) -> bool:
    """Whether marshalled code is the expected one, in whatever form; see rules 3 and 4. `data` may be anything."""
    if len(data_untrusted) > _MAX_GROWTH * len(expected):
        return False
    try:
        return _Reader(data_untrusted).digest() == _Reader(expected).digest()
    except (_MalformedError, RecursionError):
        return False


class _Reader:
    """Reads marshalled values as hashes: equal values have equal ones, in whatever form they are written.

    A hash is over the value's kind, its own bytes, and the hashes of the values in it. So a value that is referred to
    many times costs no more than once.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._seen: list[bytes | None] = []

    def digest(self) -> bytes:
        """Return the hash of the only value. Raises _MalformedError, RecursionError."""
        found = self._value()
        if self._at != len(self._data):
            raise _MalformedError
        return found

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if not self._at <= end <= len(self._data):
            raise _MalformedError
        found = self._data[self._at : end]
        self._at = end
        return found

    def _length(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _value(self) -> bytes:
        first = self._take(1)[0]
        kind = chr(first & ~_FLAG_REF)
        if kind == _REFERENCE:
            index = self._length(4)
            found = self._seen[index] if index < len(self._seen) else None
            if found is None:  # also a value within itself
                raise _MalformedError
            return found
        if not first & _FLAG_REF:
            return self._hash(kind)
        index = len(self._seen)
        self._seen.append(None)
        found = self._seen[index] = self._hash(kind)
        return found

    def _hash(self, kind: str) -> bytes:
        if kind in _TEXTS:
            size, kind = _TEXTS[kind]
            own = self._take(self._length(size))
            if kind == "a" and not own.isascii():
                raise _MalformedError
            return _hashed("u" if kind == "a" else kind, own)
        if kind in _SEQUENCES:
            values = [self._value() for _ in range(self._length(_SEQUENCES[kind]))]
            return _hashed(_SET, *sorted(values)) if kind == _SET else _hashed("(", *values)
        if kind in _FIXED:
            return _hashed(kind, self._take(_FIXED[kind]))
        if kind == _LONG:
            length = self._take(4)
            return _hashed(kind, length, self._take(2 * abs(int.from_bytes(length, "little", signed=True))))
        if kind == _CODE:
            return self._code()
        raise _MalformedError

    def _code(self) -> bytes:
        before, after = _CODE_VALUES
        parts = [self._take(4 * _CODE_WORDS)]
        parts += [self._value() for _ in range(before)]
        parts[1 + _FILE_NAME] = b""
        parts.append(self._take(4))
        parts += [self._value() for _ in range(after)]
        return _hashed(_CODE, *parts)


def _hashed(kind: str, *parts: bytes) -> bytes:
    return sha384(kind.encode() + b"".join(parts)).digest()

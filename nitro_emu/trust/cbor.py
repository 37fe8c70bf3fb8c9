"""CBOR (RFC 8949) that others send: decoded by cbor2 after a scan, which bounds what the decoder may be asked to do.

The scan refuses what a signed document of this project never has: tags (a tag may run a decoder of its own), strings in
chunks, map keys that are neither integers nor strings, the same key twice, nesting deeper than `MAX_DEPTH`, lengths
beyond the end, and bytes after the end. It accepts arrays and maps of indefinite length, which some encoders make.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import cbor2

from nitro_emu.errors import TrustError

MAX_BYTES: Final = 1 << 20
"""Of an encoded item, unless the caller says otherwise."""

MAX_DEPTH: Final = 16
"""Of arrays and maps within each other."""

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_KEYS: Final = (_UNSIGNED, _NEGATIVE, _BYTES, _TEXT)
_BREAK: Final = 0xFF
_SIMPLE_VALUES: Final = (20, 21, 22)
"""false, true and null."""
_FLOATS: Final = (25, 26, 27)
"""Their bytes follow as an argument does."""

_Key = tuple[int, int | bytes]


def dumps(value: object) -> bytes:
    """Return the encoding of integers, strings, bytes, None, booleans, lists and dicts; dicts in their own order."""
    return cbor2.dumps(value)


def loads_untrusted(data: bytes, *, name: str, max_bytes: int = MAX_BYTES, max_items: int | None = None) -> object:
    """Return the one item in `data`. `name` says in errors what it is. Raises TrustError for all that is not strict.

    `max_items` bounds the work where an item can be short: a mebibyte of the smallest takes seconds to decode.
    """
    if len(data) > max_bytes:
        raise TrustError(f"{name} has {len(data)} bytes; at most {max_bytes} are accepted")
    _Scan(data, name=name, items=max_bytes if max_items is None else max_items).run()
    try:
        decoded: object = cbor2.loads(data)
    except (cbor2.CBORError, ValueError) as error:
        raise TrustError(f"{name} is no CBOR: {_one_line(error)}") from error
    return decoded


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@dataclass(slots=True)
class _Level:
    """An array or a map that is being scanned; `left` items are still to come, None in one of indefinite length."""

    left: int | None
    is_map: bool
    done: int = 0
    keys: set[_Key] = field(default_factory=set)


class _Scan:
    """One pass over an encoded item, without recursion."""

    def __init__(self, data: bytes, *, name: str, items: int) -> None:
        self._data = data
        self._name = name
        self._position = 0
        self._items = items  # that may still come
        self._levels = [_Level(1, is_map=False)]

    def run(self) -> None:
        """Raise TrustError unless the data is one item that is accepted."""
        while self._levels:
            level = self._levels[-1]
            if level.left == level.done:
                self._levels.pop()
            elif level.left is None and self._data[self._position : self._position + 1] == b"\xff":
                self._end(level)
            else:
                self._item(level)
        if self._position != len(self._data):
            raise self._refusal(f"{len(self._data) - self._position} bytes follow its end")

    def _end(self, level: _Level) -> None:
        if level.is_map and level.done % 2:
            raise self._refusal("a map ends after a key")
        self._position += 1
        self._levels.pop()

    def _item(self, level: _Level) -> None:
        is_key = level.is_map and level.done % 2 == 0
        level.done += 1
        self._items -= 1
        if self._items < 0:
            raise self._refusal("it has too many items")
        start = self._position
        major, argument = self._head()
        if is_key:
            self._check_key(major)
        if major in {_ARRAY, _MAP}:
            self._open(argument, is_map=major == _MAP)
        elif argument is None:
            raise self._refusal("a string comes in chunks")
        else:
            content = self._take(argument) if major in {_BYTES, _TEXT} else b""
            if is_key:
                self._add_key(level, (major, content or argument), start=start)

    def _head(self) -> tuple[int, int | None]:
        """Return the major type of the next item and its argument; None: the length is indefinite."""
        first = self._take(1)[0]
        major, info = first >> 5, first & 0x1F
        if major == _TAG:
            raise self._refusal("it has a tag")
        if first == _BREAK:
            raise self._refusal("a break is out of place")
        if major == _SIMPLE and info not in _SIMPLE_VALUES + _FLOATS:
            raise self._refusal(f"the simple value {info} has no meaning here")
        if info < 24:
            return major, info
        if info <= 27:
            return major, int.from_bytes(self._take(1 << (info - 24)))
        if info == 31 and major in {_BYTES, _TEXT, _ARRAY, _MAP}:
            return major, None
        raise self._refusal(f"the length code {info} is reserved")

    def _take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise self._refusal(f"it ends {end - len(self._data)} bytes too early")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _open(self, count: int | None, *, is_map: bool) -> None:
        if len(self._levels) > MAX_DEPTH:
            raise self._refusal(f"it is nested deeper than {MAX_DEPTH}")
        items = count if count is None else count * (2 if is_map else 1)
        if items is not None and items > len(self._data) - self._position:
            raise self._refusal(f"{items} items are announced, more than bytes follow")
        self._levels.append(_Level(items, is_map=is_map))

    def _check_key(self, major: int) -> None:
        if major not in _KEYS:
            raise self._refusal("a map's key is neither an integer nor a string")

    def _add_key(self, level: _Level, key: _Key, *, start: int) -> None:
        if key in level.keys:
            raise self._refusal("a map has the same key twice", at=start)
        level.keys.add(key)

    def _refusal(self, reason: str, *, at: int | None = None) -> TrustError:
        return TrustError(f"{self._name} is no strict CBOR: {reason} (at byte {self._position if at is None else at})")

"""Messages of one length that say which they are: rows of random bytes that begin with their number.

A batch of messages has one immediate for all, so that the number is in the payload. Both ends make the same rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.perf.errors import PerfError
from srd.perf.payload import SEED, SOURCE_BYTES

MAX_ROWS: Final = 1 << 16
_NUMBER_BYTES: Final = 4
_LEAST_ROWS: Final = 2


class Rows:
    """The messages of one end, in memory that stays in the cache."""

    def __init__(self, size_bytes: int) -> None:
        number_bytes = min(_NUMBER_BYTES, size_bytes)
        self.count = min(MAX_ROWS, max(_LEAST_ROWS, SOURCE_BYTES // size_bytes), 256**number_bytes)
        self.size_bytes = size_bytes
        self.region = Region(self.count * size_bytes, name="srd-perf-rows")
        content = np.random.default_rng(SEED).bytes(self.count * size_bytes)
        self.rows: npt.NDArray[np.uint8] = self.region.array[: self.count * size_bytes].reshape(self.count, size_bytes)
        self.rows[:] = np.frombuffer(content, np.uint8).reshape(self.count, size_bytes)
        numbers = np.arange(self.count, dtype="<u4").view(np.uint8).reshape(self.count, _NUMBER_BYTES)
        self.rows[:, :number_bytes] = numbers[:, :number_bytes]
        self._number_bytes = number_bytes

    def offsets(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return where the messages from number `first` on lie."""
        offsets: npt.NDArray[np.int64] = (first + np.arange(count)) % self.count * self.size_bytes
        return offsets

    def numbers_untrusted(self, arrived: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return which rows have arrived. Raises PerfError for one that is not what was sent."""
        if arrived.shape[1] != self.size_bytes:
            raise PerfError(f"a message of {arrived.shape[1]} bytes instead of {self.size_bytes}")
        padded = np.zeros((len(arrived), _NUMBER_BYTES), np.uint8)
        padded[:, : self._number_bytes] = arrived[:, : self._number_bytes]
        numbers = padded.view("<u4").reshape(-1).astype(np.int64)
        known = numbers < self.count
        if not known.all() or not np.array_equal(self.rows[numbers], arrived):
            raise PerfError(f"a message of {self.size_bytes} bytes is not what was sent")
        return numbers

    def close(self) -> None:
        """Give the memory back."""
        del self.rows
        self.region.close()


class Tally:
    """How often each row has arrived."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._counts = np.zeros(rows.count, np.int64)

    def add(self, arrived: npt.NDArray[np.uint8]) -> None:
        """Compare and count messages. Raises PerfError."""
        self._counts += np.bincount(self._rows.numbers_untrusted(arrived), minlength=self._rows.count)

    def require_once(self, sent: int) -> None:
        """Raise PerfError unless the messages 0 to `sent` have arrived, each of them once."""
        rounds, rest = divmod(sent, self._rows.count)
        expected = rounds + (np.arange(self._rows.count) < rest)
        if not np.array_equal(self._counts, expected):
            wrong = int(np.flatnonzero(self._counts != expected)[0])
            raise PerfError(
                f"of messages of {self._rows.size_bytes} bytes, row {wrong} was sent {expected[wrong]} times, "
                f"and has arrived {self._counts[wrong]} times"
            )

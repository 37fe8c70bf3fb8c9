"""What fio measures of one NBD export, and what it checks while servers and spines fail."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from scripts.harness.errors import BenchError
from scripts.harness.fio import Fio, FioJob, FioResult

SIZE_BYTES: Final = 64 << 20
WARM_UP_S: Final = 0.5
BEFORE_FAULT_S: Final = 1.5
AFTER_FAULT_S: Final = 4.0
VERIFIED_BYTES: Final = 24 << 20
BINS_US: Final = tuple(1 << power for power in range(9, 22))
"""Upper bounds: 0.5 ms to 2 s, each twice the one before. The first has all that is below, the last all above."""
_WRONG_ERRNO: Final = 84
"""EILSEQ: fio has read something else than what was written."""


def fraction_name(bound_us: int) -> str:
    return f"read_within_{bound_us}_us_fraction"


def _fractions(bins: Counter[int]) -> dict[str, float]:
    """Return the fraction in each of `BINS_US`, of fio's bins in nanoseconds."""
    counts = Counter[int]()
    for ns, count in bins.items():
        counts[BINS_US[min(bisect_left(BINS_US, ns / 1e3), len(BINS_US) - 1)]] += count
    return {fraction_name(bound_us): counts[bound_us] / bins.total() for bound_us in BINS_US}


class FioMeasure:
    """Runs jobs at one export, by a command that precedes fio's own."""

    def __init__(self, fio: Fio, uri: str, *, before: Sequence[str], seconds: float) -> None:
        self._fio = fio
        self._uri = uri
        self._before = before
        self._seconds = seconds

    def fill(self) -> None:
        """Write all of the volume, so that reads find data."""
        self._run("--rw=write", "--bs=1m", "--iodepth=4", "--refill_buffers")

    def all(self) -> dict[str, float]:
        """Return figures of short requests, one and sixteen at a time, and of long ones."""
        found = self.latencies()
        for direction in ("read", "write"):
            many = self._timed(direction, "16k", depth=16)
            found[f"{direction}_16k_qd16_iops"] = many.iops(direction)
            long = self._timed(direction, "1m", depth=4)
            found[f"{direction}_1m_mb_per_s"] = long.bytes_per_s(direction) / 1e6
        return found

    def latencies(self, *, with_bins: bool = False) -> dict[str, float]:
        """Return figures of 16 KiB, one at a time; `with_bins`: and the fraction of the reads in each of `BINS_US`."""
        found = {}
        for direction in ("read", "write"):
            result = self._timed(direction, "16k", depth=1)
            found[f"{direction}_p50_us"] = result.latency_us(direction, 50)
            found[f"{direction}_p999_us"] = result.latency_us(direction, 99.9)
            if with_bins and direction == "read":
                found |= _fractions(result.histogram(direction))
        return found

    def through(self, *faults: Callable[[], object]) -> dict[str, float]:
        """Read and write while faults happen, one after the other; return the longest request, and how many failed."""
        seconds = BEFORE_FAULT_S + AFTER_FAULT_S * len(faults)
        job = self._start(
            "--rw=randrw", "--bs=16k", "--iodepth=4", "--continue_on_error=all", *_timed(seconds)
        )  # fmt: skip
        time.sleep(WARM_UP_S + BEFORE_FAULT_S)
        for fault in faults:
            job.require_running()
            fault()
            time.sleep(AFTER_FAULT_S)
        result = job.ended()
        return {"longest_ms": result.longest_ms(), "failed": result.failed}

    def verified(self, *faults: Callable[[], object], pause_s: float) -> int:
        """Write at random and read again soon after, while faults happen; return 1 if what was read is wrong, else 0.

        Raises BenchError if fio ends before the faults have happened.
        """
        job = self._start(*_VERIFY, "--rw=randrw", "--verify_backlog=16", "--rate=2m,2m")
        for fault in faults:
            time.sleep(pause_s)
            job.require_running()
            fault()
        return _is_wrong(job.ended())

    def write_checked(self) -> None:
        """Write what `is_lost` reads."""
        self._run(*_VERIFY, "--rw=randwrite", "--do_verify=0")

    def is_lost(self) -> int:
        """Return 1 if what `write_checked` has written is not there, else 0."""
        return _is_wrong(self._start(*_VERIFY, "--rw=randwrite", "--verify_only").ended())

    def _timed(self, direction: str, block: str, *, depth: int) -> FioResult:
        return self._run(f"--rw=rand{direction}", f"--bs={block}", f"--iodepth={depth}", *_timed(self._seconds))

    def _run(self, *options: str) -> FioResult:
        return self._fio.run(self._uri, f"--size={SIZE_BYTES}", *options, before=self._before)

    def _start(self, *options: str) -> FioJob:
        return self._fio.start(self._uri, f"--size={SIZE_BYTES}", *options, before=self._before)


_VERIFY: Final = (
    "--bs=16k", f"--io_size={VERIFIED_BYTES}", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--randseed=7",
)  # fmt: skip


def _timed(seconds: float) -> tuple[str, ...]:
    return ("--time_based", f"--runtime={seconds:g}", f"--ramp_time={WARM_UP_S:g}", "--randrepeat=0")


def _is_wrong(result: FioResult) -> int:
    """Return 1 if fio has found wrong data. Raises BenchError if it has failed otherwise."""
    if result.error not in {0, _WRONG_ERRNO}:
        raise BenchError(f"fio failed with errno {result.error}")
    return int(result.error == _WRONG_ERRNO or result.wrong > 0)

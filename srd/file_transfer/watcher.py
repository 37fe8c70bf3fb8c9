"""What a session of a receiver tells about its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from srd.file_transfer.protocol import Offer, Offers


@dataclass(frozen=True, slots=True)
class Received:
    """A file that was received and has its final name."""

    name: str
    path: Path | None
    """None for standard output."""
    size: int
    file_hash: str
    digest: str
    seconds: float
    longest_stall_ms: float
    """Longest time in which no payload landed since the file before, to 5 ms."""


class Watcher:
    """Is told what happens in a session; here, nothing is done about it."""

    def on_begin(self, offers: Offers) -> None:
        """The first offer of a session has arrived."""

    def on_resume(self, offer: Offer, resumed_bytes: int) -> None:
        """A file is ready to be written. `resumed_bytes`: of an earlier attempt."""

    def on_received(self, received: Received) -> None:
        """A file has its final name."""

    def on_identical(self, offer: Offer, digest: str) -> None:
        """A file was there before, so that its sender has not sent it."""

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:
        """A file failed. `is_kept`: what there is of it, for its sender to go on."""

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:
        """The session ended before its files did; with each, whether what there is of it is kept."""

    def on_done(self) -> None:
        """All files that the sender had to offer have their last answer."""

    def warn(self, line: str) -> None:
        """A problem that fails no file."""

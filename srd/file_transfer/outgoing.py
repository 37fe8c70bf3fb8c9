"""What a sender has to send: a file, a directory or a pipe with its name, for all attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from srd.file_transfer.errors import TransferError
from srd.file_transfer.pipe_source import PipeSource
from srd.file_transfer.protocol import MODE_BITS, STANDARD_STREAM, entry
from srd.file_transfer.source_file import SourceFile


@dataclass(eq=False, slots=True)
class OutgoingFile:
    """A file, a directory or a pipe to send."""

    path: Path
    name: str
    """Path at the receiver, relative to its directory; of a pipe it may be STANDARD_STREAM, which is none."""
    size: int = 0
    """Bytes when it was listed, for the progress only."""
    mode: int | None = None
    mtime_ns: int | None = None
    transfer: str = ""
    """Id of the transfer; empty for a directory."""
    if_differs: bool = False
    """Whether it is not to be sent if the receiver has the same."""
    pipe_fd: int | None = None
    """Descriptor of a pipe."""
    source: SourceFile | PipeSource | None = field(default=None, repr=False)
    """The open file, from the first offer to the last answer."""
    acked_bytes: int = 0
    """Of the running attempt, including what the receiver had already."""

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return not self.transfer

    @property
    def is_pipe(self) -> bool:
        """Whether it is a pipe."""
        return self.pipe_fd is not None

    def open(self, *, file_hash: str) -> None:
        """Open the file for its first offer, or see that it was not changed since. Raises TransferError."""
        if self.source is not None:
            self.source.check_unchanged()
        elif self.pipe_fd is not None:
            self.source = PipeSource(self.pipe_fd, file_hash=file_hash)
        else:
            self.source = SourceFile(self.path, file_hash=file_hash)
            if self.mtime_ns is not None:
                self.mtime_ns = self.source.mtime_ns  # of what is sent: it was listed earlier

    def close(self) -> None:
        """Close the file."""
        if self.source is not None:
            self.source.close()
            self.source = None

    def entry(self) -> dict[str, object]:
        """Return its entry of an OFFER; it is open, if it is a file."""
        mode = None if self.mode is None else self.mode & MODE_BITS
        if self.is_directory:
            return entry(name=self.name, directory=True, mode=mode, mtime_ns=self.mtime_ns)
        if self.is_pipe:
            return entry(name=None if self.name == STANDARD_STREAM else self.name, pipe=True, transfer=self.transfer)
        if self.source is None:
            raise TransferError(f"{self.path}: is not open")
        return entry(
            name=self.name,
            size=self.source.size,
            data_bytes=self.source.data_bytes if isinstance(self.source, SourceFile) else None,
            transfer=self.transfer,
            mode=mode,
            mtime_ns=self.mtime_ns,
            if_differs=self.if_differs or None,
        )

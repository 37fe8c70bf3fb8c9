"""The audit log of a card: one record for each call, chained by hashes, so that a change of the past shows.

    with AuditLog(Path("/var/log/nitro-card/card-a.audit")) as log:      # continues an existing file, after checking it
        log.append(principal="root", uid=0, pid=17, call="update", arguments=b'{"manifest": "m"}', outcome="ok")
        log.head                                                         # remember this elsewhere
    examine_log_untrusted(path, head=remembered).records                 # or TrustError

Form. A record is a line of JSON; its last member is `chain`, SHA-384 over the chain of the record before and over the
record itself without `chain`, byte for byte. So each flipped bit, and each record that is removed, exchanged or
inserted, breaks the chain at a record that `examine_log_untrusted` names. Records that are missing at the end break
nothing: those show when the head that was remembered elsewhere is not found. Whoever may write to the file can also
make a whole new chain, which shows the same way; so give the head to somebody else, such as the control plane.

Repetition. Who polls a card would fill the disk, and a control plane sends a mapping each 20 s. So calls that read,
refused calls, and mappings that were taken are summarised: the first of a kind is recorded at once; equal ones
(principal, uid, call and outcome) are counted and recorded together, as one record with their number, once a minute
for as long as they go on. Other changes of the card are never summarised. The rate of control calls is limited by the
caller of this module, which bounds the rest.

Crashes. A record is handed to the kernel in one write, before the caller is answered; it survives the end of the
process, but the last seconds are lost with the host's power, and what was only counted with a killed process. A record
that was cut off, by a crash or by a full disk, stays where it is: the next record is a seal that has its length and
hash. A file that cannot be written to is an error of `append`, and the caller refuses the call then.

The file is opened for appending only, and never shortened, renamed or rotated by the card; `chattr +a` on it goes well
with that.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from nitro_emu.closing import Closing
from nitro_emu.errors import TrustError
from nitro_emu.trust.key_files import check_private

FIRST_CHAIN: Final = "0" * 96
"""What stands for the chain of the record before the first, and is the head of an empty log."""

SUMMARY_S: Final = 60.0
"""How long equal calls are counted before they are recorded together."""

MAX_SUMMARIES: Final = 512
"""Kinds of calls that are counted at the same time; beyond that, those of all others are counted as one kind, whose
principal is `OTHERS`. So repetition costs at most 1,024 records a minute, some 10 KB/s; one kind that goes on costs one
record a minute, some 200 MB a year."""

OTHERS: Final = "others"

MAX_TEXT: Final = 300
"""Characters of an outcome that are kept."""

SEAL: Final = "seal"
"""The call of the record that seals one which was cut off."""

_MAX_LINE: Final = 16 << 10
"""A record has less, even if each character of its texts takes 12 bytes."""

_RESERVED: Final = 2 * _MAX_LINE
"""Bytes: a record, and the seal of one before it."""

_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE: reserve blocks, and leave the file as long as it is
_CANNOT_RESERVE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_CHAIN_AT: Final = len(',"chain":""}\n') + 96
_CUT: Final = b"#\n"
"""Ends a line that was cut off, so that it never is a record by chance."""


@dataclass(slots=True)
class _Repeated:
    """Equal calls that were counted and not recorded yet."""

    since_s: float
    pid: int | None = None
    count: int = 0
    arguments: Any = field(default_factory=hashlib.sha384)


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What a log that holds has."""

    records: int
    head: str
    """Chain of the last record."""
    after_head: int
    """Records behind the one whose chain was asked for; 0 if none was."""


class AuditLog(Closing):
    """Appends records to a file; for one thread. A context manager."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open the file, which is made if it is missing, as its directory, and check what is in it. Raises TrustError.

        `clock`: seconds since 1970.
        """
        self.path = path
        self._clock = clock
        self._repeated: dict[tuple[str, int | None, str, str], _Repeated] = {}
        self._torn = _Torn()
        self._file = _open(path)
        try:
            with path.open("rb") as file:
                scan = _Scan(file, name=str(path))
                for _ in scan.lines():
                    pass
        except (OSError, TrustError) as error:
            os.close(self._file)
            raise TrustError(f"{_reason(error, path)}; keep the file as evidence, and name another one") from error
        self._number, self._head = scan.number, scan.chain
        if scan.torn.size:
            self._torn = scan.torn
            self._seal()

    @property
    def head(self) -> str:
        """The chain of the last record, in hexadecimal. What was counted and not recorded yet is not in it."""
        return self._head

    @property
    def records(self) -> int:
        """Records in the file."""
        return self._number

    def append(
        self,
        *,
        principal: str,
        uid: int | None,
        pid: int | None,
        call: str,
        arguments: bytes,
        outcome: str,
        reason: str = "",
        summarise: bool = False,
    ) -> None:
        """Record a call. Raises TrustError if it cannot be recorded: the call is to be refused then.

        `arguments`: their bytes, of which only the hash is kept; `reason`: details of the outcome, not in a
        summary; `summarise`: count it if an equal one was recorded within the last minute.
        """
        self.flush(older_than_s=SUMMARY_S)
        digest = hashlib.sha384(arguments)
        key = (principal[:MAX_TEXT], uid, call[:MAX_TEXT], outcome[:MAX_TEXT])
        if summarise and key not in self._repeated and len(self._repeated) >= MAX_SUMMARIES:
            key, pid = (OTHERS, None, key[2], key[3]), None
        if summarise and (repeated := self._repeated.get(key)) is not None:
            repeated.count += 1
            repeated.pid = pid
            repeated.arguments.update(digest.digest())
            return
        more = {"reason": reason[:MAX_TEXT]} if reason else {}
        self._record(key, pid=pid, arguments=digest.hexdigest(), **more)
        if summarise:
            self._repeated[key] = _Repeated(since_s=self._clock())

    def reserve(self) -> None:
        """Make sure that the disk has room for the next record. Raises TrustError if it is full.

        For calls that change the card, which must not do so without a record. On a file system that cannot reserve, the
        record itself is the first to find out.
        """
        size = os.fstat(self._file).st_size if self._file >= 0 else 0
        if _libc.fallocate(self._file, _KEEP_SIZE, size, _RESERVED) == 0:
            return
        if (number := ctypes.get_errno()) not in _CANNOT_RESERVE:
            raise TrustError(f"{self.path}: cannot be written: {os.strerror(number)}; {_REMEDY}")

    def flush(self, *, older_than_s: float = 0.0) -> None:
        """Record what was counted since more than this time. Raises TrustError.

        A summary's `arguments_sha384` is the hash over the hashes of the calls' arguments, in their order; `since_s`
        is when an equal one, or the summary before, was recorded, and `pid` is the last one's.
        """
        now = self._clock()
        for key, repeated in list(self._repeated.items()):
            if abs(now - repeated.since_s) < older_than_s:
                break  # the others are younger
            if repeated.count:
                more = {"count": repeated.count, "since_s": round(repeated.since_s, 6)}
                self._record(key, pid=repeated.pid, arguments=repeated.arguments.hexdigest(), **more)
            del self._repeated[key]
            if older_than_s and repeated.count and abs(now - repeated.since_s) < 2 * SUMMARY_S:  # they go on
                self._repeated[key] = _Repeated(since_s=now)

    def close(self) -> None:
        """Record what was counted, and close the file. May be called again. Raises TrustError."""
        if self._file < 0:
            return
        try:
            self.flush()
        finally:
            os.close(self._file)
            self._file = -1

    # -- writing ------------------------------------------------------------------------------------------------

    def _record(
        self, key: tuple[str, int | None, str, str], *, pid: int | None, arguments: str, **more: object
    ) -> None:
        principal, uid, call, outcome = key
        if self._torn.size:
            self._seal()
        self._write(
            {
                "principal": principal,
                "uid": uid,
                "pid": pid,
                "call": call,
                "arguments_sha384": arguments,
                "outcome": outcome,
                **more,
            }
        )

    def _seal(self) -> None:
        """End a line that was cut off, and record what it was."""
        self._put(_CUT)
        self._write({"call": SEAL, "bytes": self._torn.size, "torn_sha384": self._torn.hexdigest()})

    def _write(self, fields: dict[str, object]) -> None:
        body = json.dumps(
            {"number": self._number + 1, "time_s": round(self._clock(), 6), **fields}, separators=(",", ":")
        )
        chain = _chained(self._head, body.encode())
        self._put(f'{body[:-1]},"chain":"{chain}"}}\n'.encode())
        self._torn = _Torn()
        self._number += 1
        self._head = chain

    def _put(self, data: bytes) -> None:
        """Write all of it. Raises TrustError; what was written then counts as cut off."""
        if self._file < 0:
            raise TrustError(f"{self.path}: the audit log is closed; the card is ending")
        try:
            written = os.write(self._file, data)
        except OSError as error:
            raise TrustError(f"{self.path}: cannot be written: {error.strerror}; {_REMEDY}") from error
        if data == _CUT or written < len(data):
            self._torn.update(data[:written])
        if written < len(data):
            raise TrustError(f"{self.path}: cannot be written: the disk is full; {_REMEDY}")


_REMEDY: Final = "make room on the disk: the card refuses calls that it cannot record"


def examine_log_untrusted(path: Path, *, head: str | None = None) -> LogSummary:
    """Check a log. Raises TrustError that names the first bad record, or says that `head` is missing.

    `head`: a head that was remembered; the log may have gone on since, which the result says.
    """
    wanted = None if head is None else head.lower()
    found_at = 0 if wanted == FIRST_CHAIN else None
    try:
        with path.open("rb") as file:
            scan = _Scan(file, name=str(path))
            for chain in scan.lines():
                if chain == wanted:
                    found_at = scan.number
    except OSError as error:
        raise TrustError(f"{path}: cannot be read: {error.strerror}") from error
    if scan.torn.size:
        raise TrustError(f"{path}: record {scan.number + 1}: is cut off; start the card once, which seals it")
    if wanted is not None and found_at is None:
        raise TrustError(
            f"{path}: none of its {scan.number} records has the head {wanted[:16]}...: records are missing at the "
            "end, or it is another log"
        )
    return LogSummary(scan.number, scan.chain, 0 if found_at is None else scan.number - found_at)


class _Torn:
    """Bytes that are no record, by length and hash."""

    __slots__ = ("_digest", "size")

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha384()

    def update(self, data: bytes) -> None:
        self.size += len(data)
        self._digest.update(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class _Scan:
    """Reads a log from its start: `number` and `chain` of the last good record, and what is behind it."""

    def __init__(self, file: IO[bytes], *, name: str) -> None:
        self._file = file
        self._name = name
        self.number = 0
        self.chain = FIRST_CHAIN
        self.torn = _Torn()

    def lines(self) -> Iterator[str]:
        """Yield the chain of each good record. Raises TrustError for the first bad one."""
        while line := self._file.readline(_MAX_LINE):
            record = self._record_untrusted(line)
            if record is not None and self._fits(record):
                self.torn = _Torn()
                self.number += 1
                self.chain = record["chain"]
                yield self.chain
            elif line.endswith(_CUT) or not line.endswith(b"\n"):  # cut off: a seal must follow
                self.torn.update(line)
            else:
                raise TrustError(f"{self._name}: record {self.number + 1}: {self._wrong(record)}")

    def _record_untrusted(self, line: bytes) -> dict[str, Any] | None:
        """Return a line as a record, if it has the form of one."""
        body, chain = line[:-_CHAIN_AT] + b"}", line[-_CHAIN_AT:]
        if len(line) <= _CHAIN_AT or not (chain.startswith(b',"chain":"') and chain.endswith(b'"}\n')):
            return None
        try:
            record = json.loads(body)
            told = chain[-99:-3].decode("ascii")
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict):
            return None
        return {**record, "chain": told, "holds": told == _chained(self.chain, body)}

    def _fits(self, record: dict[str, Any]) -> bool:
        if not record["holds"] or record.get("number") != self.number + 1:
            return False
        sealed = (record.get("bytes"), record.get("torn_sha384")) if record.get("call") == SEAL else (0, None)
        found = (self.torn.size, self.torn.hexdigest()) if self.torn.size else (0, None)
        return sealed == found

    def _wrong(self, record: dict[str, Any] | None) -> str:
        if record is None:
            return "is no record: the line was changed"
        if self.torn.size:
            return "does not seal the line before it, which was cut off or changed"
        if record.get("number") != self.number + 1:
            return f"has the number {record.get('number')!r:.40}: records were removed, inserted or exchanged"
        return "its chain does not match: it was changed, or a record before it was removed"


def _chained(before: str, body: bytes) -> str:
    return hashlib.sha384(before.encode() + body).hexdigest()


def _reason(error: OSError | TrustError, path: Path) -> str:
    return str(error) if isinstance(error, TrustError) else f"{path}: cannot be read: {error.strerror}"


def _open(path: Path) -> int:
    """Open a log for appending, for this process alone. Raises TrustError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, flags, 0o600)
    except OSError as error:
        raise TrustError(f"{path}: the audit log cannot be opened: {error.strerror}; name another file") from error
    try:
        _check(file, path)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise TrustError(f"{path}: another card writes this audit log; name another file") from None
    except BaseException:
        os.close(file)
        raise
    return file


def _check(file: int, path: Path) -> None:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise TrustError(f"{path}: the audit log is no regular file; name another file")
    check_private(path, status)

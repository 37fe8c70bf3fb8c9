"""The card's end of its connection to the chip.

    chip = ChipClient.connect(Path("/var/lib/nitro-chip"))       # or ChipClient.from_fd(fd) after a re-exec
    report = await chip.boot(image_root=root, manifest=manifest, configuration=file, secret=buffer)
    document = await chip.attest(nonce=nonce, user_data=None, public_key=None)

Rules.
1. All calls wait on the event loop. One of them at a time uses the connection, and the others wait for their turn; both
   together are bounded in time, and the number of those that wait is bounded.
2. A chip that has gone, or does not answer in time, is a TrustError. The card goes on; it can attest no more.
3. The secret is received into the caller's buffer, and is in no other memory of this process.
4. What the chip reports it has measured from the files itself. A card reads its settings' file on its own: it must
   compare that with `BootReport.configuration`, as the file may have changed in between.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from nitro_emu.chip.messages import (
    CHIP_SOCKET,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    SECRET_BYTES,
    ChipMessage,
    decode_untrusted,
    encode,
    one_line,
)
from nitro_emu.chip.pcrs import BOOT_PCRS, MAX_EVENTS, PcrEvent, event_untrusted
from nitro_emu.closing import Closing
from nitro_emu.errors import TrustError
from nitro_emu.trust.manifest import PCR_CONFIGURATION
from nitro_emu.trust.measure import DIGEST_BYTES

BOOT_TIMEOUT_S: Final = 60.0
"""The chip reads and hashes an image of at most 1 GiB; usually 0.2 s."""

UPDATE_TIMEOUT_S: Final = 20.0
"""The same as a boot, while attestations wait."""

ATTEST_TIMEOUT_S: Final = 10.0
"""Two signatures, and at times a new key: a few milliseconds."""

STATUS_TIMEOUT_S: Final = 60.0
"""The chip may be measuring a card."""

MAX_WAITING: Final = 256
"""Calls that use the connection or wait for it: as many attestations take half a second."""

_AT_ONCE: Final = 0.0
_GONE: Final = "the chip has gone; start it with nitro-chip run, then start the card again"


@dataclass(frozen=True, slots=True)
class BootReport:
    """What the chip has measured and verified."""

    pcrs: Mapping[int, bytes]
    """Registers 0 to 15, 48 bytes each."""

    version: int
    """The manifest's."""

    events: tuple[PcrEvent, ...]
    """What was added to the registers, in order."""

    @property
    def configuration(self) -> bytes:
        """SHA-384 of the settings' file that was verified."""
        return next((event.digest for event in self.events if event.index == PCR_CONFIGURATION), b"")


class ChipClient(Closing):
    """A connection to a chip. Not for several threads."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection (`connect` and `from_fd` make clients)."""
        connection.settimeout(0)
        self._socket = connection
        self._number = int.from_bytes(os.urandom(6))  # answers to what ran here before a re-exec have others
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._has_gone = False
        self._is_closed = False
        self._limit: asyncio.Timeout | None = None  # of the call under way, which closes the socket at its end

    @classmethod
    def connect(cls, path: Path) -> Self:
        """Connect to the chip at a socket, or in the chip's directory. Raises TrustError if none answers."""
        path = path / CHIP_SOCKET if path.is_dir() else path
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(0)  # a backlog that is full is an error then
        try:
            connection.connect(str(path))
        except OSError as error:
            connection.close()
            reason = error.strerror or str(error)
            raise TrustError(f"{path}: no chip answers ({reason}); start it with: nitro-chip run DIR") from error
        return cls(connection)

    @classmethod
    def from_fd(cls, fd: int) -> Self:
        """Take over the connection of a card that was re-executed. Raises TrustError if `fd` is no such connection."""
        try:
            connection = socket.socket(fileno=fd)
        except OSError as error:
            raise TrustError(f"descriptor {fd} is no connection to a chip ({error.strerror}); start again") from error
        if connection.family != socket.AF_UNIX or connection.type != socket.SOCK_SEQPACKET:
            connection.detach()
            raise TrustError(f"descriptor {fd} is no connection to a chip, but another socket; start the card again")
        connection.set_inheritable(False)
        return cls(connection)

    @property
    def fd(self) -> int:
        """The connection's descriptor; see `keep_over_exec`."""
        return self._socket.fileno()

    def keep_over_exec(self) -> int:
        """Return a descriptor of the connection for `from_fd`, that stays when this is closed, and over an exec."""
        descriptor = os.dup(self._socket.fileno())
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
        return descriptor

    async def boot(
        self,
        *,
        image_root: Path,
        manifest: Path,
        configuration: Path,
        secret: bytearray | memoryview,
        timeout_s: float = BOOT_TIMEOUT_S,
    ) -> BootReport:
        """Let the chip measure the card, also again, and write the card's X25519 private key into `secret` (32 bytes).

        Raises TrustError("SEALED: reason") if the chip refuses, and for a chip that has gone; `secret` is zeros then.
        A boot that takes too long, or is cancelled, ends the connection.
        """
        view = memoryview(secret).cast("B")
        if view.nbytes != SECRET_BYTES or view.readonly:
            raise TrustError(f"secret: {view.nbytes} bytes; give a buffer of {SECRET_BYTES} that can be written")
        view[:] = bytes(SECRET_BYTES)
        files = _paths(image_root=image_root, manifest=manifest, configuration=configuration)
        async with self._in_turn(timeout_s=timeout_s):
            try:
                answer = await self._ask("Boot", files)
            except asyncio.CancelledError:
                self.close()  # what comes later, such as a secret, must not be taken for something else
                raise
            if (reason := answer.fields.get("reason")) is not None:
                raise TrustError(f"SEALED: {one_line(str(reason))}")
            try:
                report = _report_untrusted(answer.fields)
                await self._receive_secret(view)
            except BaseException:
                view[:] = bytes(SECRET_BYTES)
                self.close()
                raise
        return report

    async def check_update(
        self, *, image_root: Path, manifest: Path, configuration: Path, timeout_s: float = UPDATE_TIMEOUT_S
    ) -> int:
        """Return the version of a new manifest if the chip would boot the files as they are now; changes nothing.

        Raises TrustError with the chip's reason, such as a version below the one that runs. Attestations wait for it.
        """
        files = _paths(image_root=image_root, manifest=manifest, configuration=configuration)
        answer = await self._ask_in_turn("CheckUpdate", files, timeout_s=timeout_s)
        version = answer.fields.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise TrustError(f"the chip's answer has the version {version!r:.50}; it is of another version: restart it")
        return version

    async def status(self, *, timeout_s: float = STATUS_TIMEOUT_S) -> dict[str, Any]:
        """Return the state of the chip and its card. Raises TrustError."""
        return dict((await self._ask_in_turn("Status", None, timeout_s=timeout_s)).fields)

    async def attest(
        self,
        *,
        nonce: bytes | None,
        user_data: bytes | None,
        public_key: bytes | None,
        timeout_s: float = ATTEST_TIMEOUT_S,
    ) -> bytes:
        """Return a signed attestation document (COSE_Sign1). Raises TrustError, also when the chip has gone."""
        fields = {"user_data": user_data, "nonce": nonce, "public_key": public_key}
        answer = await self._ask_in_turn("Attestation", fields, timeout_s=timeout_s)
        document = answer.fields.get("document")
        if not isinstance(document, bytes):
            raise TrustError("the chip's answer has no document; it is of another version: restart it")
        return document

    def close(self) -> None:
        """End the connection, which resets the chip; a call under way fails. May be called again."""
        self._has_gone = self._is_closed = True
        if self._limit is None:
            self._socket.close()
        elif not self._limit.expired():
            self._limit.reschedule(_AT_ONCE)

    # -- requests -----------------------------------------------------------------------------------------------

    async def _ask_in_turn(self, name: str, fields: Mapping[str, Any] | None, *, timeout_s: float) -> ChipMessage:
        async with self._in_turn(timeout_s=timeout_s):
            return await self._ask(name, fields)

    @asynccontextmanager
    async def _in_turn(self, *, timeout_s: float) -> AsyncIterator[None]:
        """Have the connection for a block. Raises TrustError if that, and waiting for it, takes too long."""
        if self._waiting >= MAX_WAITING:
            raise TrustError(f"{MAX_WAITING} calls wait for the chip, which is the limit; look at nitro-chip status")
        self._waiting += 1
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit, self._turn:
                self._limit = limit
                try:
                    yield
                finally:
                    self._limit = None
                    if self._is_closed:
                        self._socket.close()
        except TimeoutError:
            if limit.when() == _AT_ONCE:
                raise self._gone() from None
            raise TrustError(f"the chip has not answered for {timeout_s:g} s; see its log: is it stopped?") from None
        finally:
            self._waiting -= 1

    async def _ask(self, name: str, fields: Mapping[str, Any] | None) -> ChipMessage:
        """Send a request, and return its answer. Raises TrustError."""
        packet, loop = self._request(name, fields), asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._socket, packet)
            while received := await loop.sock_recv(self._socket, MAX_RESPONSE_BYTES + 1):
                if (answer := self._answer_untrusted(received, name=name)) is not None:
                    return answer
        except OSError as error:
            raise self._refusal() or self._gone() from error
        raise self._gone()

    def _request(self, name: str, fields: Mapping[str, Any] | None) -> bytes:
        if self._has_gone:
            raise TrustError(_GONE)
        self._number += 1
        packet = encode(self._number, name, fields)
        if len(packet) > MAX_REQUEST_BYTES:
            raise TrustError(f"{name} has {len(packet)} bytes; the chip takes {MAX_REQUEST_BYTES}: shorten what it has")
        return packet

    def _answer_untrusted(self, packet: bytes, *, name: str) -> ChipMessage | None:
        """Return the answer to the last request; None for one that comes too late. Raises TrustError for a refusal."""
        answer = decode_untrusted(packet, name="the chip's answer", max_bytes=MAX_RESPONSE_BYTES)
        if answer.number not in {0, self._number}:
            return None
        if answer.name == "Refused":  # with the number 0 if the connection is not served at all
            raise TrustError(one_line(answer.text))
        if answer.name == "Error":
            raise TrustError(f"the chip answers {name} with {answer.text:.50}")
        if answer.name != name:
            raise TrustError(f"the chip answers {name} with {answer.name:.50}; it is of another version: restart it")
        return answer

    # -- the socket ---------------------------------------------------------------------------------------------

    def _refusal(self) -> TrustError | None:
        """Return what the chip has said before it ended the connection; None: nothing."""
        for _ in range(2):  # the first may only report that the connection was reset
            with suppress(OSError, TrustError):
                answer = self._socket.recv(MAX_RESPONSE_BYTES)
                message = decode_untrusted(answer, name="the chip's answer", max_bytes=MAX_RESPONSE_BYTES)
                if message.name == "Refused":
                    return TrustError(one_line(message.text))
        return None

    async def _receive_secret(self, view: memoryview) -> None:
        """Receive the packet that follows the answer to a Boot."""
        try:
            length = await asyncio.get_running_loop().sock_recv_into(self._socket, view)
        except OSError as error:
            raise self._gone() from error
        if length != SECRET_BYTES:
            raise self._gone()

    def _gone(self) -> TrustError:
        self._has_gone = True
        return TrustError(_GONE)


def _paths(**paths: Path) -> dict[str, str]:
    """Return paths as the chip needs them: absolute, and in UTF-8. Raises TrustError."""
    found = {name: os.path.abspath(path) for name, path in paths.items()}  # noqa: PTH100 - resolves no links
    for name, path in found.items():
        if not path.isprintable():
            raise TrustError(f"{name}: {path!r:.200} has characters that cannot be sent; rename it")
    return found


def _report_untrusted(fields: Mapping[str, Any]) -> BootReport:
    pcrs, version, events = (fields.get(name) for name in ("pcrs", "version", "events"))
    if (
        not isinstance(pcrs, dict)
        or set(pcrs) != set(range(BOOT_PCRS))
        or not all(isinstance(value, bytes) and len(value) == DIGEST_BYTES for value in pcrs.values())
        or not isinstance(version, int)
        or not isinstance(events, list)
        or len(events) > MAX_EVENTS
    ):
        raise TrustError("the chip's answer to Boot has not the fields of one; it is of another version: restart it")
    return BootReport(pcrs=pcrs, version=version, events=tuple(event_untrusted(event) for event in events))

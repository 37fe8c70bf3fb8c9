"""A volume attached to this host: its front, where clients connect, and where it is asked what it does.

    with claimed(settings) as control:
        async with Attachment.open(settings, control=control, device=device) as attachment:
            await attachment.detached.wait()

Its control socket, RUN_DIR/NAME.control.sock, belongs to its user (0600). A request is a line with a JSON object:

    {"command": "status"}    {"ok": {"name": "vol-1", "size_bytes": 1073741824, "clients": 1, ...}}
    {"command": "detach"}    {"ok": {}}, when clients are served no more and all that was written is flushed

It is a process of its own (`nitro-volume attach`), or a virtual function of a card (`nitro_emu.ebs.function`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from netns.base.addresses import host_port_text
from netns.base.http_server import HttpServer
from netns.base.unix_sockets import LineClient, listen
from nitro_emu.ebs.device import BlockDevice
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.front import Front
from nitro_emu.ebs.limits import Limits, Provisioned
from nitro_emu.ebs.metrics import handler
from nitro_emu.ebs.nbd.server import NbdServer

DEFAULT_RUN_DIR: Final = Path("/run/nitro-volume")
CONTROL_SUFFIX: Final = ".control.sock"
MAX_REQUEST_BYTES: Final = 1024
ANSWER_S: Final = 5.0
"""How long a client of the control socket may take for its line, and to read the last answer."""
ASK_TIMEOUT_S: Final = 90.0
"""Of the client: a detach waits for the requests under way and a flush, each of which is bounded."""

_CREDENTIALS: Final = struct.Struct("iII")
"""Process, user and group (`struct ucred`, unix(7))."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentSettings:
    """How a volume is attached."""

    name: str
    run_dir: Path = DEFAULT_RUN_DIR
    socket: Path | None = None
    """Default: RUN_DIR/NAME.sock, unless `tcp` says where."""
    tcp: tuple[str, int] | None = None
    metrics: tuple[str, int] | None = None
    provisioned: Provisioned = field(default_factory=Provisioned)

    @property
    def control(self) -> Path:
        """Path of the control socket."""
        return control_path(self.run_dir, self.name)


def control_path(run_dir: Path, name: str) -> Path:
    """Return where the attachment of a volume is asked."""
    return run_dir / f"{name}{CONTROL_SUFFIX}"


@contextmanager
def claimed(settings: AttachmentSettings) -> Iterator[socket.socket]:
    """Have the control socket of a volume for a `with` block: no other process here attaches it. Raises VolumeError."""
    path = settings.control
    try:
        settings.run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        control = listen(path)
    except OSError as error:
        if path.is_socket():
            raise VolumeError(
                f"volume {settings.name} is attached already, by process {_listener(path)}, which listens at {path}; "
                f"detach it first: nitro-volume detach {settings.name}"
            ) from error
        raise VolumeError(f"{path}: cannot listen: {error.strerror or error}; give another --run-dir") from error
    with control:
        try:
            yield control
        finally:
            path.unlink(missing_ok=True)


def _listener(path: Path) -> str:
    """Return the number of the process that listens, if it can be asked."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_S)
        client.connect(str(path))
        return str(_CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0])
    return "unknown"


class Attachment:
    """An attached volume; `open` attaches it."""

    def __init__(
        self, settings: AttachmentSettings, *, device: BlockDevice, report: Callable[[], Mapping[str, object]] = dict
    ) -> None:
        """`report`: what the device has to tell, for the status."""
        self.settings = settings
        self.front = Front(device, limits=Limits(settings.provisioned))
        self.server = NbdServer(self.front, name=settings.name)
        self.addresses: list[str] = []
        """Where clients connect, as NBD URIs."""
        self.detached = asyncio.Event()
        """Set when the volume is to be detached."""
        self._device = device
        self._report = report
        self._end: asyncio.Future[str | None] = (
            asyncio.get_running_loop().create_future()
        )  # what went wrong, if anything
        self._waiting: set[asyncio.Task[Any]] = set()  # those that answer a client

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: AttachmentSettings,
        *,
        control: socket.socket,
        device: BlockDevice,
        report: Callable[[], Mapping[str, object]] = dict,
    ) -> AsyncIterator[Self]:
        """Attach a volume for an `async with` block; `control`: of `claimed`.

        Raises VolumeError; DeviceError if its last flush fails.
        """
        own = cls(settings, device=device, report=report)
        served = await asyncio.start_unix_server(own._answer, sock=control, limit=MAX_REQUEST_BYTES)
        metrics: HttpServer | None = None
        try:
            metrics = await own._listen()
            yield own
        finally:
            await own.server.close()
            if metrics is not None:
                await metrics.close()
            failure = await own._last_flush()
            await own._tell(failure)
            served.close()
        if failure is not None:
            raise failure

    def status(self) -> dict[str, Any]:
        """Return what the volume is and does, as JSON has it."""
        return {
            "name": self.settings.name,
            "size_bytes": self.front.size_bytes,
            "pid": os.getpid(),
            "addresses": self.addresses,
            "provisioned": asdict(self.settings.provisioned),
            **self.counters(),
            "device": dict(self._report()),
        }

    def counters(self) -> dict[str, Any]:
        """Return what was done, for `nitro_emu.ebs.metrics`."""
        return {
            "clients": self.server.clients,
            "exceeded_us": self.front.limits.exceeded_us(),
            **self.front.statistics.as_dict(),
        }

    async def _listen(self) -> HttpServer | None:
        settings = self.settings
        if settings.tcp is not None:
            address = host_port_text(*await self.server.listen_tcp(settings.tcp))
            self.addresses.append(f"nbd://{address}/{settings.name}")
        if settings.socket is not None or settings.tcp is None:
            path = settings.socket or settings.run_dir / f"{settings.name}.sock"
            await self.server.listen_unix(path)
            self.addresses.append(f"nbd+unix:///{settings.name}?socket={path}")
        if settings.metrics is None:
            return None
        routes = {"/metrics": handler(settings.name, self.counters)}
        metrics = await HttpServer.listen(settings.metrics, routes=routes, option="--metrics", error=VolumeError)
        _log.info("metrics at http://%s/metrics", host_port_text(*metrics.address))
        return metrics

    async def _last_flush(self) -> DeviceError | None:
        try:
            await self._device.flush()
        except DeviceError as error:
            return error
        return None

    # -- control ----------------------------------------------------------------------------------------------------

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a client, and end its connection."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        self._waiting.add(task)
        with suppress(OSError, ValueError):  # it has gone, or its line is too long
            async with asyncio.timeout(ANSWER_S):
                line = await reader.readline()
            writer.write(json.dumps(await self._reply(line)).encode() + b"\n")
            writer.close()
            await writer.wait_closed()
        writer.close()
        self._waiting.discard(task)

    async def _reply(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        command = request.get("command") if isinstance(request, dict) else None
        if command == "status":
            return {"ok": self.status()}
        if command != "detach":
            return {"error": "this is no command; there are detach, status"}
        if self.server.clients and request.get("force") is not True:
            return {"error": f"{self.server.clients} NBD clients use it; end them first, or give --force"}
        self.detached.set()
        failure = await asyncio.shield(self._end)
        return {"ok": {}} if failure is None else {"error": failure}

    async def _tell(self, failure: DeviceError | None) -> None:
        """Tell those who have asked for it that the volume is detached."""
        self._end.set_result(None if failure is None else str(failure))
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=ANSWER_S)


def ask(run_dir: Path, name: str, command: str, **fields: object) -> dict[str, Any]:
    """Ask the attachment of a volume; blocks. Raises VolumeError."""
    try:
        with LineClient(control_path(run_dir, name), timeout_s=ASK_TIMEOUT_S) as client:
            reply = client.ask_untrusted({"command": command, **fields})
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise VolumeError(f"volume {name} is not attached here; attach it: nitro-volume attach {name}") from error
    except (OSError, EOFError, ValueError) as error:
        reason = str(error) or "it has ended"
        raise VolumeError(f"volume {name}: its process does not answer ({reason}); look at its log") from error
    if not isinstance(found := reply.get("ok"), dict):
        raise VolumeError(f"volume {name}: {reply.get('error')!s:.500}")
    return found


def attached(run_dir: Path) -> list[str]:
    """Return the names of the volumes that have, or had, a control socket in a run directory."""
    return sorted(path.name.removesuffix(CONTROL_SUFFIX) for path in run_dir.glob(f"*{CONTROL_SUFFIX}"))

"""The builder of send requests: `ibv_wr_start`, ..., `ibv_wr_complete`.

    builder.start()
    builder.wr_id = 1
    builder.send()
    builder.set_ud_address(ah, remote_qpn=..., remote_qkey=...)
    builder.set_sge(sge)
    builder.complete()

Between `start` and `complete`, any number of requests. The first error sticks: the calls after it have no effect, and
`complete` raises it and posts nothing. The send queue is locked meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from nitro_emu.efa.abi.io import ProcessingHint, SendOp, Sge
from nitro_emu.efa.abi.limits import MAX_RDMA_SGES
from nitro_emu.efa.verbs.qp_rules import SendRules
from nitro_emu.efa.verbs.resource import AddressHandle
from nitro_emu.efa.verbs.send_queue import Draft, SendRing, UdAddress
from nitro_emu.efa.verbs.wr import SendFlags, SendOps
from nitro_emu.errors import VerbsError


class SendBuilder:
    """Builds sessions. `wr_id` and `wr_flags` are those of the requests that follow."""

    def __init__(self, queue: SendRing, *, rules: SendRules, inline_write: bool) -> None:
        self.wr_id = 0
        self.wr_flags = int(SendFlags.SIGNALED)
        self._queue = queue
        self._rules = rules
        self._inline_write = inline_write
        self._open = False
        self._error: VerbsError | None = None
        self._requests: list[Draft] = []

    def start(self) -> None:
        """Begin. Raises VerbsError if it has begun already."""
        self._queue.lock.acquire()
        if self._open:
            self._queue.lock.release()
            raise VerbsError(errno.EINVAL, "a session is open; complete or abort it")
        self._open, self._error, self._requests = True, None, []

    def send(self, *, immediate: int | None = None) -> None:
        """Begin a SEND. `immediate`: in host order."""
        needed = SendOps.SEND if immediate is None else SendOps.SEND_WITH_IMM
        self._begin(SendOp.SEND, needed=needed, immediate=immediate, remote=None)

    def rdma_read(self, rkey: int, *, address: int) -> None:
        """Begin a READ."""
        self._begin(SendOp.RDMA_READ, needed=SendOps.RDMA_READ, immediate=None, remote=(rkey, address))

    def rdma_write(self, rkey: int, *, address: int, immediate: int | None = None) -> None:
        """Begin a WRITE. `immediate`: in host order."""
        needed = SendOps.RDMA_WRITE if immediate is None else SendOps.RDMA_WRITE_WITH_IMM
        self._begin(SendOp.RDMA_WRITE, needed=needed, immediate=immediate, remote=(rkey, address))

    def set_ud_address(self, ah: AddressHandle, *, remote_qpn: int, remote_qkey: int) -> None:
        """Set where the request goes."""
        if (request := self._current()) is not None:
            request.destination = UdAddress(ah.number, remote_qpn, remote_qkey)

    def set_sge(self, sge: Sge) -> None:
        """Set the request's only buffer."""
        if (request := self._current()) is not None:
            request.sges = (sge,)

    def set_sge_list(self, sges: Sequence[Sge]) -> None:
        """Set the request's buffers."""
        if (request := self._current()) is not None:
            most = self._queue.max_sges if request.remote is None else MAX_RDMA_SGES
            if len(sges) > most:
                self._fail(VerbsError(errno.EINVAL, f"{len(sges)} buffers, at most {most} are possible"))
            else:
                request.sges = tuple(sges)

    def set_inline_data(self, data: bytes) -> None:
        """Set the request's payload, which is copied."""
        if (request := self._current()) is not None:
            if len(data) > self._queue.max_inline_bytes:
                most = self._queue.max_inline_bytes
                self._fail(VerbsError(errno.EINVAL, f"{len(data)} bytes inline, the queue pair was created for {most}"))
            elif request.op == SendOp.RDMA_READ or (request.op == SendOp.RDMA_WRITE and not self._inline_write):
                self._fail(VerbsError(errno.EINVAL, f"{request.op.name} has no inline data here"))
            else:
                request.data = bytes(data)

    def set_processing_hints(self, hints: ProcessingHint) -> None:
        """Set the request's hints for the device."""
        if (request := self._current()) is not None:
            request.hints = hints

    def complete(self) -> None:
        """Post all requests, and end. Raises the first error, and posts nothing then."""
        self._check_open()
        try:
            if self._error is None:
                self._write()
            if self._error is not None:
                self._roll_back()
                raise self._error
            if self._requests:
                self._queue.ring()
        finally:
            self._end()

    def abort(self) -> None:
        """End without posting anything."""
        self._check_open()
        self._roll_back()
        self._end()

    def _begin(self, op: SendOp, *, needed: SendOps, immediate: int | None, remote: tuple[int, int] | None) -> None:
        self._check_open()
        if self._error is not None:
            return
        if not self._rules.ops & needed:
            self._fail(VerbsError(errno.EOPNOTSUPP, f"the queue pair was not created for {needed.name}"))
            return
        try:
            self._rules.check(self.wr_flags)
            draft = self._queue.reserve(self.wr_id)
        except VerbsError as error:
            self._fail(error)
        else:
            draft.op, draft.immediate, draft.remote = op, immediate, remote
            self._requests.append(draft)

    def _current(self) -> Draft | None:
        """Return the request that is being built; None after an error."""
        self._check_open()
        if self._error is None and not self._requests:
            self._fail(VerbsError(errno.EINVAL, "no request has been begun"))
        return self._requests[-1] if self._error is None else None

    def _write(self) -> None:
        try:
            self._rules.check_open()  # it may have been closed since the requests were begun
            for request in self._requests:
                self._queue.write(request)
        except VerbsError as error:
            self._fail(error)

    def _roll_back(self) -> None:
        self._queue.roll_back(self._requests)

    def _fail(self, error: VerbsError) -> None:
        self._error = error

    def _check_open(self) -> None:
        if not self._open:
            raise VerbsError(errno.EINVAL, "no session is open; start one")

    def _end(self) -> None:
        self._open, self._requests, self._error = False, [], None
        self._queue.lock.release()

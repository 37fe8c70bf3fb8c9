"""The gate before a card's calls: who asks, how often, whether the policy allows it, and the record of it.

    gate = Gate(audit=audit, alarms=alarms)
    reply = await gate.answer(caller, line, calls=calls)         # NitroError: the caller gets the message

Each request passes these, in this order: the rate of its caller, its form, the policy, the call itself, the audit log.
Whatever the end, it is recorded before it is answered. If it cannot be recorded it is refused; a call that changes the
card is refused before it does so.

Over TCP a caller may have any number of addresses. So all hosts together have one rate, besides that of each. A host
that has sent a map which counted is proved to be the control plane's, and is no longer limited by what others send.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from netns.base.token_bucket import TokenBucket
from nitro_emu.errors import NitroError, TrustError
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.audit_log import AuditLog
from nitro_emu.trust.policy import CHANGES, POLICY, Call, Principal, is_allowed
from srd.log_limit import Clock

MAX_REQUEST_BYTES: Final = 64 << 10
MAX_MAP_BYTES: Final = 2 << 20
"""Of a request with a mapping, in base64: some 10,000 interfaces."""

RATES: Final[Mapping[Principal, tuple[float, int]]] = {
    Principal.ROOT: (200.0, 1000),
    Principal.CARD_USER: (200.0, 1000),
    Principal.TENANT: (5.0, 20),
    Principal.CONTROL_PLANE: (5.0, 20),
    Principal.UNKNOWN: (1.0, 10),
}
"""Requests a second, and at once, of each caller: of a user, or of a host. Each takes time of the card's only thread: a
request of root's 0.1 ms to some ms, a signature to check or to make about 1 ms."""

TCP_RATE: Final = (10.0, 40)
"""Requests a second, and at once, of all hosts together that are not proved. A replayed map takes some ms."""

MAX_PROVED: Final = 4
"""Hosts that are remembered as the control plane's: those whose maps counted last."""

MAX_BUCKETS: Final = 1024
"""Callers whose rate is measured at the same time; others share the rate of one."""

_BIG_MAP: Final = re.compile(rb'\{"command": ?"map", ?"document": ?"([A-Za-z0-9+/]*=*)"\}\s*')
"""A request of more than `MAX_REQUEST_BYTES`. It is not parsed as JSON, which would take a stranger's 2 MiB 50 ms."""

_NEVER_SUMMARISED: Final = CHANGES - {Call.MAP}
"""A control plane sends its mapping some 4,000 times a day, whether it has changed or not."""

Answers = Mapping[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]]


class CallError(NitroError):
    """A request is malformed, or asks for what there is not; the client gets the message."""


class RefusedCallError(NitroError):
    """The policy, or a limit, refuses a request; the client gets the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who has connected, as the kernel says."""

    principal: Principal
    uid: int | None = None
    """None: over TCP."""
    pid: int | None = None
    host: str = ""
    """Address, over TCP."""

    @property
    def key(self) -> tuple[Principal, int | str | None]:
        """Whose requests and connections are counted together."""
        return self.principal, self.host or self.uid

    @property
    def name(self) -> str:
        """For records."""
        return f"{self.principal}@{self.host}" if self.host else str(self.principal)

    def __str__(self) -> str:
        """For messages."""
        return f"{self.host} (TCP)" if self.host else f"uid {self.uid}"


class Gate:
    """Lets pass what the policy allows, at a bounded rate, and records everything."""

    def __init__(self, *, audit: AuditLog | None, alarms: Alarms, clock: Clock = time.monotonic) -> None:
        self._audit = audit
        self._alarms = alarms
        self._clock = clock
        self._buckets: dict[object, TokenBucket] = {}
        self._tcp_bucket = _bucket_of(TCP_RATE)
        self._proved: deque[str] = deque(maxlen=MAX_PROVED)

    def is_proved(self, caller: Caller) -> bool:
        """Return whether a caller over TCP is a host that has sent a map which counted."""
        return caller.host in self._proved

    async def answer(self, caller: Caller, line: bytes, *, calls: Answers) -> dict[str, Any]:
        """Return what a call answers to a request. Raises NitroError: it was refused, or has failed."""
        call, arguments = "request", line
        try:
            self._check_rate(caller)
            request = request_untrusted(line)
            call, arguments = _call_untrusted(request, calls=calls), _canonical(request)
            self._check(caller, call)
            if call in CHANGES and self._audit is not None:
                self._audit.reserve()
            reply = await calls[call](request)
        except RefusedCallError as error:
            self._record(caller, call=call, arguments=arguments, outcome="refused", reason=str(error))
            raise
        except asyncio.CancelledError:  # the client has gone, or the card ends: that goes on, recorded or not
            with suppress(TrustError):
                self._record(caller, call=call, arguments=arguments, outcome="abandoned")
            raise
        except Exception as error:
            outcome = f"failed: {type(error).__name__}"
            self._record(caller, call=call, arguments=arguments, outcome=outcome, reason=str(error))
            if call == "map":
                self._alarms.raise_alarm("map", f"a mapping from {caller} was refused: {error}")
            raise
        if call == Call.MAP and caller.host and not self.is_proved(caller):
            self._proved.append(caller.host)
        self._record(caller, call=call, arguments=arguments, outcome="ok", summarise=call not in _NEVER_SUMMARISED)
        return reply

    def refuse_connection(self, caller: Caller, *, reason: str) -> None:
        """Record, with an alarm, that a caller was sent away. Raises TrustError if it cannot be recorded."""
        self._alarms.raise_alarm("control", reason)
        self._record(caller, call="connect", arguments=b"", outcome="refused", reason=reason)

    def _check_rate(self, caller: Caller) -> None:
        """Raise RefusedCallError if a caller asks too often."""
        if not self._bucket(caller).take(now=self._clock()):
            raise RefusedCallError(f"{caller} asks more often than {RATES[caller.principal][0]:g} times a second; wait")
        if caller.host and not self.is_proved(caller) and not self._tcp_bucket.take(now=self._clock()):
            raise RefusedCallError(f"all hosts together ask more often than {TCP_RATE[0]:g} times a second; wait")

    def _check(self, caller: Caller, call: str) -> None:
        """Raise RefusedCallError unless the policy allows the call."""
        if is_allowed(caller.principal, call=call):
            return
        allowed = ", ".join(sorted(POLICY[caller.principal])) or "nothing"
        reason = f"{caller} may not ask for {call}, only for {allowed}; ask as root, or as the card's user"
        self._alarms.raise_alarm("control", reason)
        raise RefusedCallError(reason)

    def _bucket(self, caller: Caller) -> TokenBucket:
        key: object = caller.key
        if key not in self._buckets and len(self._buckets) >= MAX_BUCKETS and not self.is_proved(caller):
            now = self._clock()
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_full(now)}
            key = key if len(self._buckets) < MAX_BUCKETS else None
        if (bucket := self._buckets.get(key)) is None:
            bucket = self._buckets[key] = _bucket_of(RATES[caller.principal])
        return bucket

    def _record(
        self, caller: Caller, *, call: str, arguments: bytes, outcome: str, reason: str = "", summarise: bool = True
    ) -> None:
        """Record a call. Raises TrustError, with an alarm, if that cannot be done."""
        if self._audit is None:
            return
        try:
            self._audit.append(
                principal=caller.name,
                uid=caller.uid,
                pid=caller.pid,
                call=call,
                arguments=arguments,
                outcome=outcome,
                reason=reason,
                summarise=summarise,
            )
        except TrustError as error:
            self._alarms.raise_alarm("audit", str(error))
            raise


def request_untrusted(line: bytes) -> dict[str, Any]:
    """Return a request as an object. Raises CallError."""
    if len(line) > MAX_REQUEST_BYTES:
        if (found := _BIG_MAP.fullmatch(line)) is None:
            raise CallError(f"a request has at most {MAX_REQUEST_BYTES} bytes, unless it is a map of the usual form")
        return {"command": "map", "document": found.group(1).decode("ascii")}
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CallError(f"not JSON: {error!s:.200}") from None
    if not isinstance(request, dict):
        raise CallError("a request is a JSON object")
    return request


def _call_untrusted(request: dict[str, Any], *, calls: Answers) -> str:
    """Take the name of the call out of a request. Raises CallError if there is no such call."""
    command = request.pop("command", None)
    if not isinstance(command, str) or command not in calls:
        raise CallError(f"no command {command!r:.100}; there are {', '.join(calls)}")
    return command


def _canonical(arguments: dict[str, Any]) -> bytes:
    """Return arguments as the bytes whose hash the audit log has."""
    return json.dumps(arguments, sort_keys=True).encode()


def _bucket_of(rate: tuple[float, int]) -> TokenBucket:
    """Return a bucket for so many a second, and so many at once."""
    return TokenBucket(rate[0], depth_s=rate[1] / rate[0])

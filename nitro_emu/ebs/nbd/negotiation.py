"""The negotiation of one client, without I/O: an option in, answers out."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum, auto

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.nbd.wire import (
    CONTEXT,
    CONTEXT_ID,
    EXPORT_NAME_REPLY,
    MAX_PAYLOAD_BYTES,
    SERVED,
    Info,
    NbdError,
    Option,
    OptionReply,
    Transmission,
    contexts_untrusted,
    info_untrusted,
    option_reply,
)


class AfterOption(Enum):
    """What comes after an option."""

    MORE = auto()
    TRANSMISSION = auto()
    END = auto()


@dataclass(slots=True, kw_only=True)
class Negotiation:
    """What one client and the server have agreed on."""

    name: str
    """Of the export. The empty name, a client's default, is the same export."""
    size_bytes: int
    sends_zeroes: bool = True
    """Whether EXPORT_NAME is answered with the padding of old."""
    is_structured: bool = False
    """Whether replies are structured."""
    has_context: bool = False
    """Whether base:allocation was selected."""
    _outcome: AfterOption = field(default=AfterOption.MORE, init=False)

    @property
    def flags(self) -> Transmission:
        """Return what the export can do for this client."""
        return SERVED | (Transmission.SEND_DF if self.is_structured else Transmission(0))

    def answer_untrusted(self, option: int, data: bytes) -> tuple[bytes, AfterOption]:
        """Return what to send, and what comes then. Raises NbdError if the connection is to end without an answer."""
        self._outcome = AfterOption.MORE
        if option == Option.EXPORT_NAME:
            return self._export_name(data), AfterOption.TRANSMISSION
        try:
            return self._answer(option, data), self._outcome
        except NbdError as error:
            return option_reply(option, OptionReply.ERR_INVALID, str(error).encode()), AfterOption.MORE

    def _answer(self, option: int, data: bytes) -> bytes:
        if option in {Option.INFO, Option.GO}:
            return self._info(option, data)
        if option in {Option.LIST_META_CONTEXT, Option.SET_META_CONTEXT}:
            return self._contexts(option, data)
        if option not in {Option.ABORT, Option.LIST, Option.STRUCTURED_REPLY}:
            return option_reply(option, OptionReply.ERR_UNSUP)
        if data:
            raise NbdError("this option has no data")
        if option == Option.ABORT:
            self._outcome = AfterOption.END
        elif option == Option.STRUCTURED_REPLY:
            self.is_structured = True
        listed = option_reply(option, OptionReply.SERVER, _text(self.name.encode())) if option == Option.LIST else b""
        return listed + option_reply(option, OptionReply.ACK)

    def _export_name(self, data: bytes) -> bytes:
        if not self._is_ours(data):
            raise NbdError("there is no export of that name")  # this option has no answer that says so
        return EXPORT_NAME_REPLY.pack(self.size_bytes, self.flags) + bytes(124 * self.sends_zeroes)

    def _info(self, option: int, data: bytes) -> bytes:
        name, wanted = info_untrusted(data)
        if not self._is_ours(name):
            return option_reply(option, OptionReply.ERR_UNKNOWN, f"the export is {self.name}".encode())
        told = [struct.pack(">HQH", Info.EXPORT, self.size_bytes, self.flags)]
        if Info.NAME in wanted:
            told.append(struct.pack(">H", Info.NAME) + self.name.encode())
        if Info.BLOCK_SIZE in wanted:
            told.append(struct.pack(">HIII", Info.BLOCK_SIZE, 1, BLOCK_BYTES, MAX_PAYLOAD_BYTES))
        if option == Option.GO:
            self._outcome = AfterOption.TRANSMISSION
        return b"".join(option_reply(option, OptionReply.INFO, each) for each in told) + option_reply(
            option, OptionReply.ACK
        )

    def _contexts(self, option: int, data: bytes) -> bytes:
        is_set = option == Option.SET_META_CONTEXT
        if is_set:
            self.has_context = False  # whatever comes of it
        name, queries = contexts_untrusted(data)
        if not self.is_structured:
            raise NbdError("contexts need structured replies; negotiate them first")
        if not self._is_ours(name):
            return option_reply(option, OptionReply.ERR_UNKNOWN, f"the export is {self.name}".encode())
        is_asked = CONTEXT in queries or (not is_set and (not queries or CONTEXT.partition(b":")[0] + b":" in queries))
        if is_set:
            self.has_context = is_asked
        found = option_reply(option, OptionReply.META_CONTEXT, (is_set * CONTEXT_ID).to_bytes(4) + CONTEXT)
        return found * is_asked + option_reply(option, OptionReply.ACK)

    def _is_ours(self, name: bytes) -> bool:
        return name in {b"", self.name.encode()}


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(4) + text

"""The two queues of a queue pair, as completion queues find them by the queue pair's number."""

from __future__ import annotations

from dataclasses import dataclass

from nitro_emu.verbs.recv_queue import RecvQueue
from nitro_emu.verbs.send_queue import SendQueue


@dataclass(frozen=True, slots=True)
class Queues:
    """A queue pair's queues. They hold no reference to it, so that a forgotten queue pair is collected."""

    send: SendQueue
    recv: RecvQueue

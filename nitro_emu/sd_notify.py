"""Tell systemd about the state of this process, by the protocol of sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

_log: Final = logging.getLogger(__name__)


def sd_notify(state: str) -> None:
    """Send the state (READY=1, STOPPING=1 ...), if systemd has started this process; a failure is logged only."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.connect(address)
            sender.send(state.encode())
    except (OSError, ValueError) as error:
        _log.warning("NOTIFY_SOCKET %s: not told %s: %s", name, state, error)

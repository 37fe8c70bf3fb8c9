"""Captures for tshark, and what it says of them with the project's dissector."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import srd.contrib
from netns.observe.pcapng import PcapngFile
from srd.proto.wire.data import DEFAULT_PORT
from tests.patience import PATIENCE_S

DISSECTOR = Path(srd.contrib.__file__).parent / "wireshark" / "srd.lua"
FIRST = ("-o", "udp.try_heuristic_first:TRUE")
"""Also where an ephemeral port happens to be another protocol's."""
Fields = dict[str, list[str]]
"""Of one packet, by the names of Wireshark's fields: the values, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A datagram that was captured."""

    payload: bytes
    source: tuple[str, int] = ("10.0.1.1", 40000)
    destination: tuple[str, int] = ("10.0.2.1", DEFAULT_PORT)
    at_us: int = 0
    captured_bytes: int | None = None
    """Of the payload; None: all."""


def ethernet(frame: Frame) -> bytes:
    """Return a datagram with its headers, without checksums."""
    (source, source_port), (destination, destination_port) = frame.source, frame.destination
    udp = struct.pack("!HHHH", source_port, destination_port, 8 + len(frame.payload), 0)
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(frame.payload), 0, 0, 64, 17, 0) + addresses
    return bytes(12) + b"\x08\x00" + ip + udp + frame.payload


def write(path: Path, frames: Iterable[Frame]) -> Path:
    """Write a capture; frames without a time come 1 ms apart."""
    with PcapngFile(path, interfaces=("test",), comment="", overwrite=True) as file:
        for number, frame in enumerate(frames):
            data = ethernet(frame)
            at_ns = (frame.at_us or number * 1000) * 1000 + 10**18
            kept = len(data) if frame.captured_bytes is None else 42 + frame.captured_bytes
            file.packet(data[:kept], interface=0, at_ns=at_ns, length_bytes=len(data))
    return path


def tshark(*arguments: object, stdin: bytes | None = None) -> str:
    """Run tshark with the dissector, without a user's settings; return its output."""
    command = ["tshark", *map(str, arguments)]
    command[3:3] = ["-X", f"lua_script:{DISSECTOR}"]  # -G wants to be first
    environment = os.environ | {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, env=environment, input=stdin, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert "Lua" not in done.stderr.decode()
    return done.stdout.decode()


def dissect(path: Path, *arguments: str) -> list[list[Fields]]:
    """Return the SRD packets of each frame."""
    output, found = tshark("-r", path, "-T", "json", "-J", "srd", *arguments), []
    assert "Lua Error" not in output
    frames = json.loads(output, object_pairs_hook=list)
    for frame in frames:
        layers = dict(dict(frame)["_source"])["layers"]
        found.append([_flat(value) for name, value in layers if name == "srd"])
    return found


def _flat(pairs: list[Any]) -> Fields:
    found: Fields = {}
    for name, value in pairs:
        if isinstance(value, list):
            if not name.endswith("_tree") and not name.startswith(("Path report", "_ws")):
                raise AssertionError(name)
            for inner, values in _flat(value).items():
                found.setdefault(inner, []).extend(values)
        else:
            found.setdefault(name, []).append(value)
    return found

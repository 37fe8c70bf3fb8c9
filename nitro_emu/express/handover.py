"""What a card hands on to the program that replaces it in a live update: tenants' interfaces, with their flows.

    leave_interfaces({"ena_0": kept})          # just before execve
    kept = take_interfaces(config.vfs)         # in the new program, before it opens virtual functions

A confined process cannot make an interface: it enters no namespace, and opens no device for writing. So the
descriptors stay open over execve, and with them the interface, its addresses and routes, and the packets that wait in
it. The new program finds the descriptors' numbers, and the flows, in a memfd, whose own number is in the environment.

An interface is kept if the new settings say the same of it as those before (`VfConfig.kept_settings`). Others are
closed, which deletes them; they are made anew if that is possible.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from nitro_emu.errors import CardError
from nitro_emu.peers.vf_config import VfConfig
from nitro_emu.vpc.flows import SavedFlow

HANDOVER_FD: Final = "NITRO_HANDOVER_FD"
"""Environment variable with the descriptor of the memfd, while an update replaces the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInterface:
    """A tenant's interface that is open, without anybody who reads it."""

    settings: str
    """`VfConfig.kept_settings` of its virtual function."""
    fds: tuple[int, ...]
    index: int
    """Its number in the kernel."""
    flows: tuple[SavedFlow, ...]


_LEFT: Final = TypeAdapter(dict[str, KeptInterface], config=ConfigDict(ser_json_bytes="hex", val_json_bytes="hex"))
"""By the name of the virtual function."""


def leave_interfaces(interfaces: Mapping[str, KeptInterface]) -> None:
    """Leave interfaces, by the name of the virtual function, to the program that is executed next."""
    if interfaces:
        descriptor = os.memfd_create("nitro-handover", 0)  # stays open over execve
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(_LEFT.dump_json({**interfaces}))
        os.environ[HANDOVER_FD] = str(descriptor)


def take_interfaces(vfs: Iterable[VfConfig]) -> dict[str, KeptInterface]:
    """Return what the program before has left for these virtual functions. Raises CardError if it is not understood."""
    descriptor = os.environ.pop(HANDOVER_FD, "")
    if not descriptor.isdigit():
        return {}
    try:
        with open(int(descriptor), "rb") as file:  # noqa: PTH123 - a descriptor
            file.seek(0)
            left = _LEFT.validate_json(file.read())
    except (OSError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise CardError(
            f"what the program before this update has left is not understood: {reason}; start again"
        ) from error
    wanted = {vf.name: vf.kept_settings for vf in vfs}
    kept = {name: each for name, each in left.items() if each.settings == wanted.get(name)}
    for name in left.keys() - kept.keys():
        for fd in left[name].fds:
            os.close(fd)
    return kept

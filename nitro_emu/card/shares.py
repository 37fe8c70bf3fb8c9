"""What virtual functions may have of the process's descriptors and mappings: shares, so that none takes another's.

    for vf in shared_out(config.vfs):                    # the settings, with limits that fit into the shares

The kernel bounds both for the whole process (RLIMIT_NOFILE, vm.max_map_count), and programs use them up: by being
there, and with completion queues, queue pairs and memory. So what there is is divided before the first program comes. A
virtual function that needs less than an equal share leaves the rest to the others; the limits of one that needs more
are reduced, in proportion, and its programs learn the limits that count (GET_FEATURE).
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from nitro_emu.efa.card.closer import MAX_PENDING
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.errors import CardError
from nitro_emu.peers.vf_config import VfConfig
from srd.proto.paths.table import RESERVE_PATHS

DESCRIPTORS: Final[Mapping[str, int]] = {"max_connections": 14, "max_cqs": 3, "max_qps": 2}
"""What each takes. A region has one, and its mapping another. A program: its socket, doorbells, events, the kick, the
way to wake it, three of an answer, and four of an entry. A completion queue: its ring, and the way to wake for it."""

MAPPINGS: Final[Mapping[str, int]] = {"max_connections": 2, "max_cqs": 1, "max_qps": 1, "max_mrs": 1}
"""Likewise."""

ENGINE_DESCRIPTORS: Final = 16 + MAX_PENDING
"""Of an engine besides its paths (timer, epoll, memory, two of an interface), its socket for programs, and two control
connections of its tenant; rounded up. And what is not closed yet, with the five of a connection that is ended."""

ENGINE_MAPPINGS: Final = 32 + MAX_PENDING
"""Of an engine: memory, stages, arrays of NumPy's that malloc maps. And what is not unmapped yet."""

RESERVED_DESCRIPTORS: Final = 128
"""For control connections of others than tenants (96), logs, metrics, and what is open for a moment."""

RESERVED_MAPPINGS: Final = 2048
"""For libraries, threads and malloc."""

V = TypeVar("V", bound=VfConfig)
_log: Final = logging.getLogger(__name__)


def shared_out(vfs: Sequence[V]) -> list[V]:
    """Return the settings of virtual functions with limits that fit into the process's. Raises CardError."""
    taken = sum(vf.paths + RESERVE_PATHS + ENGINE_DESCRIPTORS for vf in vfs)
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = descriptors - len(list(Path("/proc/self/fd").iterdir())) - RESERVED_DESCRIPTORS - taken
    found = divided(vfs, costs=DESCRIPTORS, left=left, what=f"{descriptors} descriptors of the process (LimitNOFILE)")
    mappings = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    left = mappings - RESERVED_MAPPINGS - ENGINE_MAPPINGS * len(vfs)
    return divided(found, costs=MAPPINGS, left=left, what=f"{mappings} mappings of a process (vm.max_map_count)")


def divided(vfs: Sequence[V], *, costs: Mapping[str, int], left: int, what: str) -> list[V]:
    """Divide `left`, of which each object of a limit takes `costs`. Raises CardError if one could not serve a program.

    `what`: what is divided, for messages. Only kind EFA has programs of tenants, and needs any.
    """
    needs = [sum(costs[each] * getattr(vf, each) for each in costs) if isinstance(vf, EfaConfig) else 0 for vf in vfs]
    least, found = sum(costs.values()), list(vfs)
    by_need = sorted((need, index) for index, need in enumerate(needs) if need)
    for rank, (need, index) in enumerate(by_need):
        share = min(need, left // (len(by_need) - rank))
        if share < least:
            raise CardError(f"{what} are too few for {len(vfs)} virtual functions; raise that, or serve fewer")
        left -= share
        if share < need:
            part = (share - least) / (need - least)
            limits = {name: 1 + int((getattr(vfs[index], name) - 1) * part) for name in costs}
            _log.warning("%s: has %s: the %s are divided", vfs[index].name, limits, what)
            found[index] = vfs[index].model_copy(update=limits)
    return found

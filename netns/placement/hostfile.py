"""A placement as an MPI host file: one line for each host in order of the ranks, with its number of slots.

A host file says how many ranks a host has, and which by the order of its lines. So it has no way to say that a host
has ranks before and after those of another, as a leader's host may, or one that takes the ranks of a lost host: Open
MPI adds up the lines of a host, and other ranks would run there.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from netns.errors import JobError
from netns.placement.place import Placement


def hostfile(placement: Placement) -> str:
    """Return `HOST slots=N` lines; Open MPI and others then number their ranks as the placement does.

    Raises JobError for a host with ranks that do not follow each other.
    """
    slots = [(host, len(list(ranks))) for host, ranks in groupby(placement.hosts)]
    for host, times in Counter(host for host, _ in slots).items():
        if times > 1:
            ranks = ", ".join(str(rank) for rank, each in enumerate(placement.hosts) if each == host)
            raise JobError(
                f"job {placement.job.name}: {host} has the ranks {ranks}, with others between them, and a host file "
                "cannot say so (Open MPI adds up a host's lines, so others run there); --json has the host of each rank"
            )
    return "".join(f"{host} slots={count}\n" for host, count in slots)

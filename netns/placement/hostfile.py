"""A placement as an MPI host file: one line for each host in order of the ranks, with its number of slots."""

from __future__ import annotations

from itertools import groupby

from netns.placement.place import Placement


def hostfile(placement: Placement) -> str:
    """Return `HOST slots=N` lines; Open MPI and others then number their ranks as the placement does."""
    return "".join(f"{host} slots={len(list(ranks))}\n" for host, ranks in groupby(placement.hosts))

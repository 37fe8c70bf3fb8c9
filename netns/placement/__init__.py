"""Topology-aware placement: a job's ranks inside the smallest part of the network with enough room.

    job = read_job(Path("job.yaml"))
    placement = place(job, nodes_of(read_topology(Path("fabric.yaml"))))
    placement.hosts  # rank -> name of the host

`assign` is the algorithm alone, on plain data (netns/placement/assign.py).
"""

from netns.placement.assign import assign
from netns.placement.groups import assign_all
from netns.placement.job import Job, read_job
from netns.placement.place import Placement, place

__all__ = ["Job", "Placement", "assign", "assign_all", "place", "read_job"]

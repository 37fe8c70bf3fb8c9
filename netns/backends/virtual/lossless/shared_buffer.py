"""The shared buffer of a switch: what is admitted, and who must pause. It knows no time and no packets, only bytes.

A `PriorityGroup` is the bytes of one ingress port and class. Bytes of a lossless group go to its reserve, then to the
shared pool while the group's part of that is within the threshold, then to its headroom; with none left the packet is
dropped, which never happens if the headroom is right. Departures free headroom first, then the shared pool, then the
reserve. A lossy group has the shared pool only, and the threshold is that of the queue which the packet joins.
"""

from __future__ import annotations

from netns.backends.virtual.lossless.profile import ClassProfile


class PriorityGroup:
    """Bytes of one ingress port and class."""

    __slots__ = ("headroom", "headroom_limit", "lossless", "profile", "reserve", "reserve_limit", "shared")

    def __init__(self, profile: ClassProfile, *, reserve_bytes: int = 0, headroom_bytes: int = 0) -> None:
        self.profile = profile
        self.lossless = profile.lossless
        self.reserve_limit = reserve_bytes if profile.lossless else 0
        self.headroom_limit = headroom_bytes if profile.lossless else 0
        self.reserve = self.shared = self.headroom = 0

    @property
    def held_bytes(self) -> int:
        """All bytes of it."""
        return self.reserve + self.shared + self.headroom


class SharedBuffer:
    """Admits and releases bytes. `shared_bytes` is the pool that all groups share, `used_bytes` what they use of it."""

    __slots__ = ("resume_offset_bytes", "shared_bytes", "used_bytes")

    def __init__(self, *, total_bytes: int, groups: list[PriorityGroup], resume_offset_bytes: int) -> None:
        """`total_bytes` includes the groups' reserves and headrooms. Raises ValueError if these take all of it."""
        kept = sum(group.reserve_limit + group.headroom_limit for group in groups)
        if kept >= total_bytes:
            raise ValueError(f"{kept} bytes of reserve and headroom do not fit into a buffer of {total_bytes}")
        self.shared_bytes = total_bytes - kept
        self.used_bytes = 0
        self.resume_offset_bytes = resume_offset_bytes

    def threshold_bytes(self, profile: ClassProfile) -> float:
        """The present threshold of a class."""
        if profile.static_bytes is not None:
            return profile.static_bytes
        return profile.alpha * (self.shared_bytes - self.used_bytes)

    def admit(self, group: PriorityGroup, *, length_bytes: int, queue_bytes: int) -> bool:
        """Take a packet, or return False: it is dropped. `queue_bytes` is the queue that it would join."""
        if not group.lossless:
            if (
                queue_bytes + length_bytes > self.threshold_bytes(group.profile)
                or self.used_bytes + length_bytes > self.shared_bytes
            ):
                return False
        elif group.reserve + length_bytes <= group.reserve_limit:
            group.reserve += length_bytes
            return True
        elif (
            group.shared + length_bytes > self.threshold_bytes(group.profile)
            or self.used_bytes + length_bytes > self.shared_bytes
        ):
            if group.headroom + length_bytes > group.headroom_limit:
                return False
            group.headroom += length_bytes
            return True
        group.shared += length_bytes
        self.used_bytes += length_bytes
        return True

    def release(self, group: PriorityGroup, *, length_bytes: int) -> None:
        """Free a packet's bytes."""
        part = min(length_bytes, group.headroom)
        group.headroom -= part
        length_bytes -= part
        part = min(length_bytes, group.shared)
        group.shared -= part
        self.used_bytes -= part
        group.reserve -= length_bytes - part

    def pause_due(self, group: PriorityGroup) -> bool:
        """Whether the sender of a lossless group must be stopped (XOFF)."""
        return group.headroom > 0 or group.shared >= self.threshold_bytes(group.profile)

    def resume_due(self, group: PriorityGroup) -> bool:
        """Whether it may go on (XON). An empty group may, however full the buffer is."""
        if group.headroom:
            return False
        return not group.shared or group.shared + self.resume_offset_bytes <= self.threshold_bytes(group.profile)

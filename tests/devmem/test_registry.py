"""Registrations: rights, bounds, keys, and the region that they keep open."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devmem.errors import RegionError, RegistrationError
from devmem.region import Region
from devmem.registry import Access, Registration, Registry

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZE = 8192
REGION = Region(SIZE)


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


def lookups(registry: Registry, keys: tuple[int, int], *, offset: int, length: int) -> list[int | None]:
    local, remote = keys
    return [
        registry.local_writable(local, offset=offset, length=length),
        registry.remote_writable(remote, peer=1, offset=offset, length=length),
        registry.remote_readable(remote, peer=1, offset=offset, length=length),
    ]


def register(registry: Registry, *, length: int = SIZE) -> Registration:
    """Register the beginning of the region with all rights, for every peer."""
    return registry.register(REGION, offset=0, length=length, access=ALL, peers=None)


def keys_of(registration: Registration) -> tuple[int, int]:
    return registration.local_key, registration.remote_key


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 2**64])
def test_find__offsets_that_would_wrap(registry: Registry, offset: int) -> None:
    keys = keys_of(register(registry))
    assert lookups(registry, keys, offset=offset, length=1) == [None] * 3


def test_register__keys_are_all_different_and_64_bits_long(registry: Registry) -> None:
    keys = {key for _ in range(1000) for key in keys_of(register(registry, length=1))}
    assert len(keys) == 2 * len(registry) == 2000
    assert 0 not in keys
    assert max(keys) < 1 << 64
    for bit in range(64):  # each bit is set in about half of them
        assert 800 < sum(key >> bit & 1 for key in keys) < 1200, bit
    registry.close()
    assert len(registry) == 0


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, SIZE + 1), (SIZE, 1), (0, -1)])
def test_register__out_of_bounds_bad_flow(registry: Registry, offset: int, length: int) -> None:
    with pytest.raises(RegionError, match=f"not within a region of {SIZE}"):
        registry.register(REGION, offset=offset, length=length, access=ALL, peers=None)
    assert len(registry) == 0


def test_register__remote_write_needs_local_write() -> None:
    with pytest.raises(RegistrationError, match="REMOTE_WRITE needs LOCAL_WRITE too; add it"):
        Registry().register(REGION, offset=0, length=1, access=Access.REMOTE_WRITE, peers=None)


def test_find__other_keys_are_unknown(registry: Registry) -> None:
    """All keys that differ from a valid one in one bit, against a hundred registrations."""
    true = [keys_of(register(registry)) for _ in range(100)]
    guesses = [(local ^ 1 << bit, remote ^ 1 << bit) for local, remote in true for bit in range(64)]
    guesses += [(0, 0), (-1, -1), (2**64, 2**64)]
    for guess in guesses:
        assert lookups(registry, guess, offset=0, length=1) == [None] * 3, guess


RIGHTS = [Access(0), Access.LOCAL_WRITE, Access.REMOTE_READ, Access.LOCAL_WRITE | Access.REMOTE_WRITE, ALL]


class RegistryMachine(RuleBasedStateMachine):
    """Register and deregister in any order, and look up around every bound, against a list of registrations."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.live: list[Registration] = []
        self.deregistered: list[Registration] = []

    @rule(start=st.integers(0, SIZE), length=st.integers(0, SIZE), access=st.sampled_from(RIGHTS))
    def register(self, start: int, length: int, access: Access) -> None:
        if start + length <= SIZE:
            self.live.append(self.registry.register(REGION, offset=start, length=length, access=access, peers=None))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def deregister(self, data: st.DataObject) -> None:
        registration = data.draw(st.sampled_from(self.live))
        self.registry.deregister(registration)
        self.live.remove(registration)
        self.deregistered.append(registration)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        registration = data.draw(st.sampled_from(self.live))
        near = st.sampled_from([-1, 0, 1]).flatmap(lambda by: st.sampled_from([by, registration.length + by]))
        offset, end = data.draw(near), data.draw(near)
        found = lookups(self.registry, keys_of(registration), offset=offset, length=end - offset)
        inside = 0 <= offset <= end <= registration.length
        place = REGION.address + registration.offset + offset
        rights = (Access.LOCAL_WRITE, Access.REMOTE_WRITE, Access.REMOTE_READ)
        assert found == [place if inside and right in registration.access else None for right in rights]

    @invariant()
    def deregistered_keys_are_invalid(self) -> None:
        assert len(self.registry) == len(self.live)
        for registration in self.deregistered:
            assert lookups(self.registry, keys_of(registration), offset=0, length=0) == [None] * 3

    def teardown(self) -> None:
        self.registry.close()


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=50, stateful_step_count=30)


@pytest.mark.parametrize("access", [Access.LOCAL_WRITE, Access.LOCAL_WRITE | Access.REMOTE_WRITE])
def test_register__read_only_memory_for_writing_bad_flow(registry: Registry, access: Access) -> None:
    with Region.from_fd(REGION.fd, writable=False) as region:
        with pytest.raises(RegistrationError, match="mapped read-only; map it writable"):
            registry.register(region, offset=0, length=1, access=access, peers=None)
        registration = registry.register(region, offset=0, length=1, access=Access.REMOTE_READ, peers=None)
        assert lookups(registry, keys_of(registration), offset=0, length=1) == [None, None, region.address]
        registry.close()


def test_deregister__the_key_stops_working_at_once(registry: Registry) -> None:
    one = register(registry, length=10)
    two = register(registry, length=10)
    with pytest.raises(RegistrationError, match="not registered here"):
        Registry().deregister(one)
    registry.deregister(one)
    assert lookups(registry, keys_of(one), offset=0, length=1) == [None] * 3
    assert lookups(registry, keys_of(two), offset=0, length=1) == [REGION.address] * 3
    with pytest.raises(RegistrationError, match="once is enough"):
        registry.deregister(one)


def test_renew_key__the_old_one_stops_working_at_once(registry: Registry) -> None:
    registration = register(registry)
    before = registration.remote_key
    registry.renew_key(registration)
    assert registration.remote_key != before
    place = REGION.address
    assert lookups(registry, (registration.local_key, before), offset=0, length=1) == [place, None, None]
    assert lookups(registry, keys_of(registration), offset=0, length=1) == [place] * 3
    registry.deregister(registration)
    with pytest.raises(RegistrationError, match="is not registered here"):
        registry.renew_key(registration)


def test_registration__keeps_its_region_open_and_hides_its_keys(registry: Registry) -> None:
    with Region(SIZE) as region:
        registration: Registration = registry.register(region, offset=0, length=10, access=ALL, peers=None)
        for key in keys_of(registration):
            assert str(key) not in repr(registration)
            assert f"{key:x}" not in repr(registration)
        with pytest.raises(RegionError, match="live views"):
            region.close()
        registry.deregister(registration)
        registration.release()  # has no further effect


def test_register__allocates_pages(registry: Registry) -> None:
    """A page fault for each page would stall receivers into it."""
    with Region(8 * 4096) as region:
        registry.register(region, offset=4096, length=4096, access=Access.LOCAL_WRITE)
        assert os.fstat(region.fd).st_blocks * 512 == 4096
        registry.close()


def test_register__for_some_peers(registry: Registry) -> None:
    registration = registry.register(REGION, offset=0, length=10, access=ALL, peers=frozenset((3, 5)))
    for ask in (registry.remote_readable, registry.remote_writable):
        found = [ask(registration.remote_key, peer=peer, offset=0, length=10) for peer in range(7)]
        assert [peer for peer, place in enumerate(found) if place is not None] == [3, 5]


@pytest.mark.parametrize("access", [Access.REMOTE_READ, Access.LOCAL_WRITE | Access.REMOTE_WRITE])
def test_register__remote_rights_for_nobody_bad_flow(access: Access) -> None:
    with pytest.raises(RegistrationError, match="is for nobody"):
        Registry().register(REGION, offset=0, length=1, access=access)

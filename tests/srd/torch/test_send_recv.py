"""srd.torch: from rank to rank, by tag, in any order, of any length, beside collectives."""

from __future__ import annotations

from pathlib import Path

from tests.srd.torch.ranks import EAGER_WINDOW_BYTES, LEAST_BYTES, dist, run, torch

SIZES = (0, 1, 1000, 16_384, 16_385, 2_000_003)


def tags() -> None:
    """Received in another order than they were sent in."""
    rank = dist.get_rank()
    order = [(size, tag) for tag, size in enumerate(SIZES)]
    if rank == 0:
        works = [dist.isend(torch.full((size,), float(tag)), 1, tag=tag) for size, tag in order]
    else:
        places = [torch.full((size,), -1.0) for size, _ in order]
        works = [dist.irecv(places[tag], 0, tag=tag) for _, tag in reversed(order)]
    for work in works:
        work.wait()
    if rank == 1:
        for size, tag in order:
            assert torch.equal(places[tag], torch.full((size,), float(tag)))


def test_tags__decide_not_the_order(tmp_path: Path) -> None:
    run(tags, world=2, store=tmp_path / "store")


def one_tag() -> None:
    """With one tag the order of the sends is that of the receives, whichever packets arrive first."""
    rank = dist.get_rank()
    count = 60
    if rank == 0:
        for work in [dist.isend(torch.full((1 + 997 * each,), float(each)), 1) for each in range(count)]:
            work.wait()
    else:
        for each in range(count):
            place = torch.empty(1 + 997 * each)
            dist.recv(place, 0)
            assert torch.equal(place, torch.full_like(place, each))


def test_one_tag__keeps_the_order(tmp_path: Path) -> None:
    run(one_tag, world=2, store=tmp_path / "store")


def from_any() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for size in SIZES[1:]:
        if rank:
            dist.send(torch.full((size,), float(rank)), 0)
        else:
            heard = []
            for _ in range(world - 1):
                place = torch.empty(size)
                source = dist.recv(place)
                assert torch.equal(place, torch.full((size,), float(source)))
                heard.append(source)
            assert sorted(heard) == list(range(1, world))
        dist.barrier()  # or a rank would send of the next size


def test_recv_from_any__says_from_whom(tmp_path: Path) -> None:
    run(from_any, world=4, store=tmp_path / "store")


def to_self() -> None:
    rank = dist.get_rank()
    place = torch.empty(100_000)
    work = dist.isend(torch.full((100_000,), 5.0), rank)
    dist.irecv(place, rank).wait()
    work.wait()
    assert bool((place == 5).all())


def test_send_to_self(tmp_path: Path) -> None:
    run(to_self, world=2, store=tmp_path / "store")


def waiting_for_nobody() -> None:
    """More than the receive region holds, sent before anybody receives, keeps no collective from its data."""
    rank = dist.get_rank()
    count, size = 12, 4 << 20  # 16 MiB each
    given = torch.arange(size, dtype=torch.float32)
    other = 1 - rank
    works = [dist.isend(given + each, other) for each in range(count)]
    small, large = torch.ones(10), torch.ones(3_000_000)
    dist.all_reduce(small)
    dist.all_reduce(large)
    assert bool((small == 2).all())
    assert bool((large == 2).all())
    place = torch.empty(size)
    for each in range(count):
        dist.recv(place, other)
        assert torch.equal(place, given + each)
    for work in works:
        work.wait()


def test_sends_that_nobody_receives_yet__keep_no_collective_from_its_data(tmp_path: Path) -> None:
    run(waiting_for_nobody, world=2, store=tmp_path / "store")


def ahead() -> None:
    """The root is done with a broadcast when its data has left: it is far ahead of the others here."""
    rank = dist.get_rank()
    for each in range(300):
        tensor = torch.full((1000,), float(each if rank == 0 else -1))
        dist.broadcast(tensor, 0)
        assert bool((tensor == each).all())


def test_a_root_that_is_ahead(tmp_path: Path) -> None:
    run(ahead, world=3, store=tmp_path / "store")


def unread() -> tuple[int, int]:
    """Sends that nobody receives: most are not done, little is kept; then all are received, the last one first."""
    rank = dist.get_rank()
    group = dist.group.WORLD
    sizes = [*range(4000, 4300), *([0, 1] * 1000)]
    done = kept = 0
    given = [torch.full((size,), float(tag)) for tag, size in enumerate(sizes)]
    if rank == 0:
        works = [dist.isend(each, 1, tag=tag) for tag, each in enumerate(given)]
        works[0].wait()
    total = torch.ones(1_000_000)
    dist.all_reduce(total)  # in pieces: all sends that could leave have left
    assert bool((total == 2).all())
    if rank == 0:
        done = sum(work.is_completed() for work in works)
        dist.barrier()
        for work in works:
            work.wait()
    else:
        kept = group.kept_bytes
        dist.barrier()
        for tag in reversed(range(len(sizes))):
            place = torch.full((sizes[tag],), -1.0)
            dist.recv(place, 0, tag=tag)
            assert torch.equal(place, given[tag])
    dist.barrier()
    assert group.kept_bytes == 0
    return done, kept


def test_sends_that_nobody_receives__wait_at_the_sender(tmp_path: Path) -> None:
    (done, _), (_, kept) = run(unread, world=2, store=tmp_path / "store")
    least = 4000 * 4
    assert 1 <= done <= EAGER_WINDOW_BYTES // least
    barrier_bytes = LEAST_BYTES  # of a rank that may be ahead: collectives have a window of their own
    assert EAGER_WINDOW_BYTES - 2 * least <= kept <= EAGER_WINDOW_BYTES + barrier_bytes


def far_ahead() -> tuple[int, int]:
    """A root that goes on while the other rank calls nothing."""
    rank = dist.get_rank()
    group = dist.group.WORLD
    count, size = 400, 4000
    done = kept = 0
    flag = torch.zeros(1)
    if rank == 0:
        works = [dist.broadcast(torch.full((size,), float(each)), 0, async_op=True) for each in range(count)]
        works[EAGER_WINDOW_BYTES // (4 * size) - 1].wait()
        for _ in range(3):  # there and back: what could leave has left
            dist.send(flag, 1)
            dist.recv(flag, 1)
        done = sum(work.is_completed() for work in works)
        dist.send(flag, 1)
    else:
        for _ in range(3):
            dist.recv(flag, 0)
            dist.send(flag, 0)
        dist.recv(flag, 0)
        kept = group.kept_bytes
        works = []
        for each in range(count):
            place = torch.empty(size)
            dist.broadcast(place, 0)
            assert bool((place == each).all())
    for work in works:
        work.wait()
    dist.barrier()
    return done, kept


def test_a_root_that_is_far_ahead__waits(tmp_path: Path) -> None:
    (done, _), (_, kept) = run(far_ahead, world=2, store=tmp_path / "store")
    assert done == EAGER_WINDOW_BYTES // 16_000
    assert kept <= EAGER_WINDOW_BYTES

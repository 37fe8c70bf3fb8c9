"""What a collective sends to whom. All ranks choose alike: by the length, and the number of ranks.

- All-reduce up to `EAGER_BYTES`: recursive doubling (R. Thakur, R. Rabenseifner, W. Gropp: "Optimization of collective
  communication operations in MPICH", IJHPCA 2005): in each of log2(N) steps, pairs of ranks exchange what they have.
  Both add the same two values, so all ranks end with the same bits. Ranks beyond a power of two give theirs to another
  one first, and get the result at the end.
- Longer ones: a ring, in pieces: a piece that has landed and was reduced goes on to the next rank at once. Ranks of
  one leaf are neighbours in it, so that each leaf's uplinks carry the data once. See `srd.examples.allreduce`.
- The same where several leaves have as many ranks each, two or more: three rings in turn. The ranks of a leaf reduce,
  each a part; those of the same place in their leaf combine this part over the leaves; each leaf passes the results
  round. As much passes the uplinks, in fewer steps. An element is added up in the order of the ring of a leaf, from
  the rank behind the one that keeps it, and then in that of the leaves: its bits differ from those of one ring.
- Broadcast of more, to more than one rank: the root gives each rank a part, and each passes its own on to the others
  as it lands.
- All else goes straight from rank to rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from srd.torch.memory import Block, Reduction, scratch
from srd.torch.mesh import Collective
from srd.torch.transfers import EAGER_BYTES, SLOTS

_FOLD, _UNFOLD = SLOTS - 2, SLOTS - 1


def _others(op: Collective) -> list[int]:
    """Return the other ranks, from the next one on, so that not all begin with the same."""
    return [(op.rank + distance) % op.size for distance in range(1, op.size)]


async def all_reduce(op: Collective, data: Block, reduction: Reduction) -> None:
    """Combine all ranks' data; each rank gets the result in its place."""
    if op.size > 1 and data.length <= EAGER_BYTES:
        await _doubling(op, data, reduction)
    elif op.size > 1:
        await _ring_all_reduce(op, data, reduction)
    reduction.finish(data, ranks=op.size)


async def _doubling(op: Collective, data: Block, reduction: Reduction) -> None:
    power = 1 << (op.size.bit_length() - 1)
    land = reduction.into(data, data)
    if op.rank >= power:
        op.send(op.rank - power, data, slot=_FOLD)
        op.receive(op.rank - power, data, slot=_UNFOLD)
        await op.finish()
        return
    if op.rank + power < op.size:
        op.receive(op.rank + power, data, land=land, slot=_FOLD)
        await op.arrived()
    for step in range(power.bit_length() - 1):
        partner = op.rank ^ (1 << step)
        op.send(partner, data, slot=step)
        op.receive(partner, data, land=land, slot=step)
        await op.arrived()
    if op.rank + power < op.size:
        op.send(op.rank + power, data, slot=_UNFOLD)
    await op.finish()


async def _ring_all_reduce(op: Collective, data: Block, reduction: Reduction) -> None:
    if op.leaf is None:
        chunks = data.split(op.size, item_bytes=reduction.item_bytes)
        _begin_steps(op, op.ring, chunks, reduction, steps=range(2 * (op.size - 1)))
        await op.finish()
        return
    leaf, column = op.leaf, op.column
    half, whole = len(leaf) - 1, 2 * (len(leaf) - 1)
    chunks = data.split(len(leaf), item_bytes=reduction.item_bytes)
    _begin_steps(op, leaf, chunks, reduction, steps=range(half))
    await op.arrived()
    own = chunks[(leaf.index(op.rank) + 1) % len(leaf)]
    parts = own.split(len(column), item_bytes=reduction.item_bytes)
    _begin_steps(op, column, parts, reduction, steps=range(2 * (len(column) - 1)), slot=whole)
    await op.arrived()
    _begin_steps(op, leaf, chunks, reduction, steps=range(half, whole))
    await op.finish()


def _begin_steps(
    op: Collective, ring: Sequence[int], chunks: Sequence[Block], reduction: Reduction, *, steps: range, slot: int = 0
) -> None:
    """Begin steps of an all-reduce in a ring: the first half reduces, and leaves each rank the chunk behind its own.

    What a rank has sent is overwritten only by a result, which contains it: whoever it was sent to has it by then.
    """
    size, place = len(ring), ring.index(op.rank)
    left, right = ring[place - 1], ring[(place + 1) % size]
    outs = [op.send(right, chunks[(place - step) % size], slot=slot + step, held=step > steps.start) for step in steps]
    for step in steps:
        chunk = chunks[(place - 1 - step) % size]
        land = reduction.into(chunk, chunk) if step < size - 1 else None
        then = outs[step + 1 - steps.start].ready if step + 1 < steps.stop else None
        op.receive(left, chunk, land=land, slot=slot + step, then=then)


def _begin_ring(op: Collective, sources: Sequence[Block], result: Block, reduction: Reduction) -> None:
    """Begin to combine all ranks' `sources`, one for each place in the ring; this rank gets its own in `result`."""
    size, place = op.size, op.ring.index(op.rank)
    left, right = op.ring[place - 1], op.ring[(place + 1) % size]
    partial = sources[(place - 1) % size]
    out = op.send(right, partial, slot=0)
    for step in range(size - 1):
        source = sources[(place - 2 - step) % size]
        is_last = step == size - 2
        partial = result if is_last else scratch(source.length)
        if not is_last:
            out = op.send(right, partial, slot=step + 1, held=True)
        then = None if is_last else out.ready
        op.receive(left, partial, land=reduction.into(source, partial), slot=step, then=then)


async def reduce_scatter(op: Collective, sources: Sequence[Block], result: Block, reduction: Reduction) -> None:
    """Combine all ranks' `sources`, one for each rank; this rank gets its own in `result`."""
    if op.size == 1:
        result.view[:] = sources[0].view
    else:
        _begin_ring(op, [sources[rank] for rank in op.ring], result, reduction)
        await op.finish()
    reduction.finish(result, ranks=op.size)


async def reduce(op: Collective, data: Block, reduction: Reduction, *, root: int) -> None:
    """Combine all ranks' data; the root gets the result in its place, and the others' data stays."""
    if op.size > 1:
        chunks = data.split(op.size, item_bytes=reduction.item_bytes)
        place = op.ring.index(op.rank)
        result = chunks[place] if op.rank == root else scratch(chunks[place].length)
        _begin_ring(op, chunks, result, reduction)
        await op.finish()
        if op.rank != root:
            op.send(root, result, slot=_UNFOLD)
        else:
            for rank in _others(op):
                chunk = chunks[op.ring.index(rank)]
                op.receive(rank, chunk, slot=_UNFOLD)
        await op.finish()
    if op.rank == root:
        reduction.finish(data, ranks=op.size)


async def broadcast(op: Collective, data: Block, *, root: int) -> None:
    """Give the root's data to all."""
    if op.size <= 2 or data.length <= EAGER_BYTES:
        if op.rank != root:
            op.receive(root, data)
        else:
            for rank in _others(op):
                op.send(rank, data)
    else:
        parts = data.split(op.size, item_bytes=1)
        others = [rank for rank in _others(op) if rank != root]
        if op.rank == root:
            for rank in others:
                op.send(rank, parts[rank])
                op.send(rank, parts[root], slot=1)
        else:
            outs = [op.send(rank, parts[op.rank], slot=1, held=True) for rank in others]

            def pass_on(piece: int) -> None:
                for out in outs:
                    out.ready(piece)

            op.receive(root, parts[op.rank], then=pass_on)
            for rank in (root, *others):
                op.receive(rank, parts[rank], slot=1)
    await op.finish()


async def all_gather(op: Collective, own: Block, results: Sequence[Block]) -> None:
    """Give each rank's block to all, in the order of ranks."""
    await exchange(op, [own] * op.size, results)


async def exchange(op: Collective, sources: Sequence[Block], results: Sequence[Block]) -> None:
    """Send a block to each rank, and receive one from each: all-to-all."""
    for rank in _others(op):
        op.receive(rank, results[rank])
        op.send(rank, sources[rank])
    own, result = sources[op.rank], results[op.rank]
    if result.length and own.address != result.address:
        result.view[:] = own.view
    await op.finish()


async def gather(op: Collective, own: Block, results: Sequence[Block] | None, *, root: int) -> None:
    """Give each rank's block to the root, which has `results`."""
    if results is None:
        op.send(root, own)
    else:
        for rank in _others(op):
            op.receive(rank, results[rank])
        if own.length:
            results[root].view[:] = own.view
    await op.finish()


async def scatter(op: Collective, own: Block, sources: Sequence[Block] | None, *, root: int) -> None:
    """Give each rank its block of the root's, which has `sources`."""
    if sources is None:
        op.receive(root, own)
    else:
        for rank in _others(op):
            op.send(rank, sources[rank])
        if own.length:
            own.view[:] = sources[root].view
    await op.finish()


async def barrier(op: Collective) -> None:
    """Return when every rank has called it: in step s each rank tells the one 2^s ahead (dissemination)."""
    step = 0
    token, heard = scratch(1), scratch(1)
    while 1 << step < op.size:
        op.send((op.rank + (1 << step)) % op.size, token, slot=step)
        op.receive((op.rank - (1 << step)) % op.size, heard, slot=step)
        await op.arrived()
        step += 1
    await op.finish()


async def all_hear_all(op: Collective) -> None:
    """Return when every rank has called it; an error names all that did not."""
    token = scratch(1)
    for rank in _others(op):
        op.send(rank, token)
        op.receive(rank, scratch(1))
    await op.finish()

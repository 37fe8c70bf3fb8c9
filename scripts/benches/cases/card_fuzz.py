"""A hostile program at one device of a card, beside good ones at two others: a million entries, by seed.

It writes send requests, receive descriptors, doorbells and admin entries with valid, half-valid and random fields,
sends descriptors of all kinds, shrinks and punches its memory, makes the card's descriptors wait, does not read its
answers, and leaves at any time. Meanwhile two good programs at the same card exchange messages and writes, and compare
every byte. Each run is a card of its own with 100,000 entries.

`card_lives`, `internal_errors`: of the card, in its log; `neighbour_wrong_bytes`, `neighbour_failed`: of the good
programs; `leftover_objects`, `leftover_descriptors`: what the card has more than before when the hostile program has
left; `rss_growth_mb`: of the card, from the first tenth of a run to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.benches import campaign
from scripts.benches.card_fuzz.run import measure
from scripts.benches.case import CaseOptions
from scripts.benches.outcome import Round, Wanted

RUNS: Final = 10
ENTRIES: Final = 100_000
"""Entries of a run."""
WANTED: Final = (
    Wanted("card_lives", ">=", 1),
    Wanted("internal_errors", "<=", 0),
    Wanted("neighbour_wrong_bytes", "<=", 0),
    Wanted("neighbour_failed", "<=", 0),
    Wanted("leftover_objects", "<=", 0),
    Wanted("leftover_descriptors", "<=", 0),
    Wanted("rss_growth_mb", "<=", 16),
)


def rounds(request: CaseOptions) -> Iterator[Round]:
    first = 1 if request.seed is None else request.seed
    for seed in campaign.seeds(first, runs=campaign.planned(request, runs=RUNS)):
        found = measure(ENTRIES, seed=seed)
        missed = (each for each in WANTED if not each.met(found[each.figure]))
        campaign.complain(
            ((each.figure, f"{found[each.figure]:g}") for each in missed), command=f"card-fuzz --seed {seed}"
        )
        yield Round(seed, found)

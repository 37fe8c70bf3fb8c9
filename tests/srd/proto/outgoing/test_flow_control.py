"""Credit, and the retry budget of a receiver that is not ready."""

from __future__ import annotations

import pytest

from srd.proto.config import RNR_FOR_EVER
from srd.proto.outgoing.flow_control import Credit


def test_covered__granted_and_unused_credit() -> None:
    credit = Credit(100, granted_messages=10, retries=0)
    assert credit.covered(100) > 0
    credit.consume(60, messages=1)
    assert credit.covered(41) == 0
    assert credit.covered(40) > 0
    credit.grant(130, messages=10)
    assert credit.covered(70) > 0
    credit.grant(120, messages=10)  # an ack that was reordered
    assert credit.covered(70) > 0


def test_grant__counts_only_answers_to_a_probe() -> None:
    credit = Credit(100, granted_messages=10, retries=0)
    for _ in range(5):
        credit.grant(100, messages=10)
    assert credit.rnr_since_grant == 0
    credit.on_credit_probe()
    credit.on_credit_probe()
    credit.grant(100, messages=10)
    credit.grant(100, messages=10)
    assert credit.rnr_since_grant == 1


@pytest.mark.parametrize("retries", range(RNR_FOR_EVER + 1))
def test_spent__after_the_budget_and_one_more_try(retries: int) -> None:
    credit = Credit(100, granted_messages=10, retries=retries)
    refused = 0
    while not credit.retries_exhausted(0) and refused < 100:
        credit.on_credit_probe()
        credit.grant(100, messages=10)
        refused += 1
    assert refused == (retries + 1 if retries < RNR_FOR_EVER else 100)


def test_spent__counts_from_the_posting_and_restarts_after_a_grant() -> None:
    credit = Credit(100, granted_messages=10, retries=1)
    for _ in range(2):
        credit.on_credit_probe()
        credit.grant(100, messages=10)
    assert credit.retries_exhausted(0)
    assert not credit.retries_exhausted(since=credit.rnr_count)
    credit.grant(101, messages=10)
    assert not credit.retries_exhausted(0)
    assert credit.rnr_since_grant == 0


def test_refuse__an_answer_to_each_try_until_the_receiver_works_again() -> None:
    credit = Credit(100, granted_messages=10, retries=1)
    assert credit.on_rnr(now=10.0, wait_s=0.5)
    assert not credit.on_rnr(now=10.4, wait_s=0.5), "of packets sent before"
    assert not credit.retries_exhausted(0)
    assert credit.on_rnr(now=10.5, wait_s=0.5)
    assert credit.retries_exhausted(0)
    credit.on_progress()
    assert not credit.retries_exhausted(0)
    assert credit.retry_at == 0.0


def test_covers__messages_too() -> None:
    credit = Credit(100, granted_messages=2, retries=0)
    assert credit.covered(0) == 2
    assert credit.covered(60) == 1
    credit.consume(0, messages=2)
    assert credit.covered(0) == 0
    assert (credit.covered(0), credit.covered(1)) == (0, 0)
    credit.grant(100, messages=3)
    assert credit.covered(100) > 0
    assert credit.covered(1) == 1


def test_grant__of_messages_alone_is_one() -> None:
    credit = Credit(100, granted_messages=2, retries=0)
    credit.on_credit_probe()
    credit.grant(100, messages=2)
    assert credit.retries_exhausted(0)
    credit.on_credit_probe()
    credit.grant(100, messages=3)
    assert not credit.retries_exhausted(0)
    credit.grant(50, messages=1)  # an ack that was reordered
    assert credit.covered(100) > 0

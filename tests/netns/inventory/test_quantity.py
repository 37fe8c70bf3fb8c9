"""netns.inventory.quantity: Kubernetes' notation for amounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import QuantityError
from netns.inventory.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        ("1", "cpu", 1000),
        ("500m", "cpu", 500),
        (2, "cpu", 2000),
        (0.5, "cpu", 500),
        ("1n", "cpu", 1),  # rounded up, as Kubernetes does
        ("1Gi", "memory", 2**30),
        ("1G", "memory", 10**9),
        ("1.5Ki", "memory", 1536),
        ("128974848", "memory", 128974848),
        ("129e6", "memory", 129_000_000),
        ("1E", "memory", 10**18),
        ("2e3", "pods", 2000),
        ("100m", "memory", 1),
        (" 8 ", "nvidia.com/gpu", 8),
        (".5", "cpu", 500),
    ],
)
def test_parse_quantity(text: str | float, resource: str, amount: int) -> None:
    assert parse_quantity(text, resource=resource) == amount


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cpu: '' is no quantity"),
        ("x", "cpu: 'x' is no quantity"),
        ("1Gib", "cpu: '1Gib' is no quantity"),
        ("1g", "cpu: '1g' ends in 'g'; use one of n, u, m, k, M"),
        ("-1", "cpu: '-1' is negative"),
        (True, "cpu: True is no quantity"),
        ("1e", "cpu: '1e' ends in 'e'"),
        ("9" * 40, "is no quantity"),
    ],
)
def test_parse_quantity__bad_flow(text: str | float, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text, resource="cpu")
    assert message in str(caught.value)


@given(st.text(max_size=12))
def test_parse_quantity__is_an_amount_or_one_error(text: str) -> None:
    amount, message = 0, "memory"
    try:
        amount = parse_quantity(text, resource="memory")
    except QuantityError as error:
        message = str(error)
    assert amount >= 0
    assert message.startswith("memory")

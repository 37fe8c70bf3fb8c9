"""Kueue's own tests, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netns.governance import answer
from tests.netns.governance_cases import CASES, differences


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_case_of_kueue(case: Mapping[str, Any]) -> None:
    assert differences(case["expect"], answer(case)) == []

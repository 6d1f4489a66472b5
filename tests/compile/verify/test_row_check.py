"""How far a row is from the model: logits by their differences, tokens by the model's logit."""

from __future__ import annotations

import math

import pytest
import torch

from neuron_llm.compile.verify.row_check import compare_logits, compare_token

EXPECTED = torch.tensor([-2.0, 0.0, 1.0, 4.0, 3.0])
SPREAD = EXPECTED.std().item()


def test_a_token_is_as_far_off_as_its_logit_is_below_the_largest() -> None:
    best, second = (compare_token(torch.tensor(token), EXPECTED) for token in (3, 4))
    assert (best.error, best.is_equal) == (0.0, True)
    assert second.error == pytest.approx(1.0 / SPREAD) and not second.is_equal
    worst = compare_token(torch.tensor(0, dtype=torch.int32), EXPECTED)
    assert worst.error == pytest.approx(6.0 / SPREAD)
    assert worst.what == "the logit of token 0 is 2.51 spreads below the most likely one's"


@pytest.mark.parametrize("token_id", [-1, 5, 2**31 - 1])
def test_a_token_outside_the_vocabulary_compares_with_nothing(token_id: int) -> None:
    found = compare_token(torch.tensor(token_id), EXPECTED)
    assert math.isnan(found.error) and not found.is_equal
    assert found.what == f"token {token_id} is outside the vocabulary (0 to 4)"


def test_logits_are_as_far_off_as_the_root_mean_square_of_their_differences() -> None:
    same = compare_logits(EXPECTED.bfloat16(), EXPECTED)
    assert (same.error, same.is_equal) == (0.0, True)
    far = compare_logits(EXPECTED + torch.tensor([0.0, 0.0, 0.0, 0.0, 2.0]), EXPECTED)
    assert far.error == pytest.approx(math.sqrt(4 / 5) / SPREAD)
    assert not far.is_equal and far.what == "logits differ by 0.375 spreads"

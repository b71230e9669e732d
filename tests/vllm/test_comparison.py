"""Does a comparison find what was not foreseen?"""

from typing import Any

import pytest

from .case import chat, user
from .comparison import Comparison
from .engine import Answer
from .prediction import Prediction

IDS = tuple(range(100, 170))
"""70 tokens: two full blocks of 32 and six tokens more."""
FORESEEN = Prediction(IDS, keys=(11, 12), num_held=32)


def answered(num_tokens: int = 70, num_cached: int = 32, ids: tuple[int, ...] = IDS) -> Answer:
    usage = {"prompt_tokens": num_tokens, "prompt_tokens_details": {"cached_tokens": num_cached}}
    return Answer(200, {"usage": usage, "prompt_token_ids": list(ids)})


def faults(
    predicted: Prediction = FORESEEN, answer: Answer | None = None, num_found: int = 2, **fields: Any
) -> list[str]:
    return Comparison(chat("c", user("x"), **fields), predicted, answer or answered(), num_found).faults()


def test_what_was_foreseen_is_no_fault() -> None:
    assert faults() == []


def test_another_number_of_tokens_is_a_fault_and_says_where_the_prompts_part() -> None:
    (fault,) = faults(answer=answered(71, ids=(*IDS[:20], 7, *IDS[20:])))
    assert fault == (
        "70 tokens, the engine says 71; they part at 20: "
        "ours from 14 on [114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125], "
        "the engine's [114, 115, 116, 117, 118, 119, 7, 120, 121, 122, 123, 124]"
    )


def test_other_ids_of_the_same_number_are_a_fault() -> None:
    (fault,) = faults(answer=answered(ids=(*IDS[:-1], 7)))
    assert "they part at 69" in fault


@pytest.mark.parametrize(("keys", "num_found"), [((11, 12), 1), ((11,), 1), ((11, 12, 13), 3), ((11, 12, 13), 2)])
def test_a_block_that_is_missing_on_either_side_is_a_fault(keys: tuple[int, ...], num_found: int) -> None:
    (fault,) = faults(Prediction(IDS, keys, 32), num_found=num_found)
    assert fault == f"2 full blocks, {len(keys)} predicted, {num_found} of them stored"


def test_another_cached_prefix_is_a_fault_unless_there_are_several_samples() -> None:
    assert faults(answer=answered(num_cached=64)) == ["32 tokens believed to be cached, the engine says 64"]
    assert faults(answer=answered(num_cached=64), n=2) == []


def test_a_refusal_of_the_engine_is_a_fault() -> None:
    assert faults(answer=Answer(400, {"error": "no"})) == ["status 400: {'error': 'no'}"]


def test_a_reason_is_a_fault_unless_the_request_may_be_declined() -> None:
    declined = Prediction(reason="option")
    assert faults(declined, num_found=0) == ["not tokenised: option"]
    assert faults(declined, num_found=0, may_decline=True) == []
    assert faults(Prediction(IDS, (11, 12), 0), may_decline=True) == [
        "0 tokens believed to be cached, the engine says 32"
    ]


def test_a_row_tells_both_sides() -> None:
    row = Comparison(chat("c", user("x")), FORESEEN, answered(), 1).row()
    assert row == {
        "name": "c",
        "engine_tokens": 70,
        "our_tokens": 70,
        "engine_cached_tokens": 32,
        "our_cached_tokens": 32,
        "blocks_predicted": 2,
        "blocks_found": 1,
        "faults": ["2 full blocks, 2 predicted, 1 of them stored"],
    }


ANTHROPIC = {"input_tokens": 6, "cache_read_input_tokens": 32, "cache_creation_input_tokens": 32}
OPENAI = {"input_tokens": 70, "input_tokens_details": {"cached_tokens": 32}}


@pytest.mark.parametrize(
    "content",
    [
        {"usage": ANTHROPIC},
        {"usage": OPENAI},
        {"usage": {"prompt_tokens": 70, "prompt_tokens_details": {"cached_tokens": 32}}},
    ],
)
def test_every_api_counts_in_its_own_way(content: dict[str, Any]) -> None:
    answer = Answer(200, content)
    assert (answer.num_prompt_tokens, answer.num_cached_tokens) == (70, 32)


def test_an_error_counts_nothing() -> None:
    answer = Answer(400, {"error": "no"})
    assert (answer.num_prompt_tokens, answer.num_cached_tokens, answer.token_ids) == (None, None, [])


@pytest.mark.parametrize(
    "content",
    [
        {"prompt_token_ids": [1, 2]},
        {"input_messages": [{"type": "raw_message_tokens", "message": "Hi", "tokens": [1, 2]}]},
        {"choices": [{"prompt_token_ids": [1, 2]}, {}]},
    ],
)
def test_ids_are_where_the_api_puts_them(content: dict[str, Any]) -> None:
    assert Answer(200, content).token_ids == [[1, 2]]

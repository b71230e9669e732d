"""Are the tokens, the blocks and the cached prefix of a prompt, foreseen from its bytes, those of a real engine?"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.core.matching.block_keys import HashAlgorithm

from . import messages_api, pictured, responses_api, texts
from .case import Case
from .comparison import Comparison
from .engine import Engine
from .prediction import Prediction, Predictor
from .result import keep

pytestmark = pytest.mark.vllm
MIN_COMPARED = 200
LATE_S = 5.0
"""How long events that are missing are waited for."""
SENT: tuple[Callable[[], list[Case]], ...] = (
    *(texts.chats, texts.completions),
    *(pictured.formats, pictured.several, pictured.turns, pictured.by_uuid),
    *(messages_api.conversations, messages_api.thoughts, messages_api.tools, messages_api.pictured),
    *(responses_api.conversations, responses_api.calls, responses_api.pictured),
)
"""In this order on one server: some requests find what earlier ones left."""


def test_tokens_blocks_and_cached_prefix_are_as_foreseen(engine: Engine, model: Path) -> None:
    predictor = Predictor(model)
    found = [_compare(engine, predictor, case) for make in SENT for case in make()]
    keep(engine, [each.row() for each in found])
    faults = [f"{each.case.name}: {fault}" for each in found for fault in each.faults()]
    assert not faults, "\n".join(faults)
    assert len([each for each in found if not each.is_declined]) >= MIN_COMPARED
    assert predictor.hash_algorithm is HashAlgorithm.SHA256


def _compare(engine: Engine, predictor: Predictor, case: Case) -> Comparison:
    predicted = predictor.predict(case)
    answer = engine.ask(case)
    _wait_for(engine, predicted)
    for message in engine.messages:
        predictor.observe(message)
    return Comparison(case, predicted, answer, len(engine.stored.intersection(predicted.keys)))


def _wait_for(engine: Engine, predicted: Prediction) -> None:
    deadline = time.monotonic() + LATE_S
    while not engine.stored.issuperset(predicted.keys) and time.monotonic() < deadline:
        engine.listen(0.5)

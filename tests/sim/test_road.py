"""The legs of a request, one behind the other."""

from tessera.sim.pools import Placed
from tessera.sim.road import EncodeLeg, PromptLeg, Road

SERVER = object()


def road(num_items=0, *, prefill=None):
    return Road(Placed(SERVER, prefill, dict.fromkeys(range(num_items), SERVER)))


def test_all_items_at_once_then_the_prompt_then_the_answer():
    made = road(2, prefill=SERVER)
    assert made.start() == [EncodeLeg(0), EncodeLeg(1)]
    assert made.ended(EncodeLeg(1), is_done=True) == []
    assert made.ended(EncodeLeg(0), is_done=False) == [PromptLeg.PREFILL]
    assert made.encoded == [1]
    assert made.ended(PromptLeg.PREFILL, is_done=True) == [PromptLeg.DECODE]
    assert made.is_prefilled
    assert made.ended(PromptLeg.DECODE, is_done=True) == []


def test_one_server_needs_one_leg():
    assert road().start() == [PromptLeg.DECODE]
    assert road(prefill=SERVER).start() == [PromptLeg.PREFILL]


def test_a_prefill_that_fails_leaves_the_prompt_to_the_answer():
    made = road(prefill=SERVER)
    assert made.ended(PromptLeg.PREFILL, is_done=False) == [PromptLeg.DECODE]
    assert not made.is_prefilled

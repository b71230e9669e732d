"""Which embeddings a request waits for."""

from tessera.engine.costs import Costs
from tessera.engine.encoder_cache import EncoderCache
from tessera.engine.fetches import Fetches
from tessera.engine.profiles import PROFILES
from tessera.engine.requests import EngineRequest, Handover, MediaSegment
from tessera.engine.sequences import Ticket

ROW = 40_960
ITEMS = tuple(MediaSegment(name, num_tokens=12, num_embeds=10) for name in "abab")


def made() -> tuple[Fetches, Ticket]:
    handover = Handover(fetched=frozenset("ab"))
    ticket = Ticket(EngineRequest("r", ITEMS, num_output_tokens=1, num_choices=2, handover=handover))
    ticket.start(0, 16)
    return Fetches(Costs(PROFILES["h200-tp2-qwen3-vl-32b"]), 15 * ROW), ticket


def test_each_item_is_read_once_and_kept_as_far_as_there_is_room() -> None:
    fetches, ticket = made()
    assert fetches.begin(ticket, 0, EncoderCache(100)) == 2 * 10 * ROW
    assert fetches.num_sequences == 2
    assert fetches.end(ticket)
    assert not fetches.end(ticket)
    assert (fetches.num_sequences, "a" in fetches.store, "b" in fetches.store) == (0, False, True)


def test_what_is_here_is_not_read() -> None:
    fetches, ticket = made()
    cache = EncoderCache(100)
    cache.store("a", 10, "holder")
    fetches.store.put("b", 10 * ROW)
    assert fetches.begin(ticket, 0, cache) == 0
    assert fetches.num_sequences == 0
    # The first two items are covered by the prompt's first 24 tokens; the last two are the same ones.
    other, again = made()
    assert other.begin(again, 48, EncoderCache(100)) == 0
    assert other.begin(again, 36, EncoderCache(100)) == 10 * ROW


def test_who_gives_up_waits_no_more() -> None:
    fetches, ticket = made()
    fetches.begin(ticket, 0, EncoderCache(100))
    assert fetches.leave(ticket)
    assert not fetches.leave(ticket)
    assert not fetches.end(ticket)

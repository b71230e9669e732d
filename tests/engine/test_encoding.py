"""Which items a step encodes, and how far a prompt may go."""

from tessera.engine.encoding import LOST, Encoding
from tessera.engine.requests import EngineRequest, Handover, MediaSegment, TextSegment
from tessera.engine.sequences import Sequence, Ticket

TEXT = TextSegment(key=1, num_tokens=10)


def item(name: str, num_embeds: int) -> MediaSegment:
    return MediaSegment(name, num_tokens=num_embeds + 2, num_embeds=num_embeds)


def sequence(*segments: TextSegment | MediaSegment, handover: Handover | None = None) -> Sequence:
    request = EngineRequest("r", segments, num_output_tokens=1, handover=handover or Handover())
    return Ticket(request).start(0, 16)[0]


def test_a_chunk_ends_before_an_item_without_room() -> None:
    encoding = Encoding(100)
    asked = sequence(TEXT, item("a", 60), TEXT, item("b", 50))
    assert encoding.reach(asked, 134) == 10 + 62 + 10
    assert [each.identifier for each in encoding.items] == ["a"]
    # What is through is let go; the next step has its budget again.
    asked.num_computed = 82
    encoding.release_passed(asked)
    encoding.begin()
    assert encoding.reach(asked, 52) == 52
    assert [each.identifier for each in encoding.items] == ["b"]


def test_an_item_from_elsewhere_takes_room_and_nothing_of_the_budget() -> None:
    encoding = Encoding(100)
    fetched = Handover(fetched=frozenset({"a"}))
    asked = sequence(item("a", 60), TEXT, handover=fetched)
    assert encoding.reach(asked, 72) == 72
    assert (encoding.items, encoding.cache.num_held) == ([], 60)
    assert encoding.reach(sequence(item("b", 40)), 42) == 42
    assert encoding.reach(sequence(item("c", 1)), 3) == 0


def test_an_item_that_nobody_has_is_lost_unless_the_cache_has_it() -> None:
    encoding = Encoding(100)
    bare = Handover(bare=frozenset({"a"}))
    assert encoding.reach(sequence(item("a", 60), handover=bare), 62) == LOST
    holder = sequence(item("a", 60))
    assert encoding.reach(holder, 62) == 62
    assert encoding.reach(sequence(item("a", 60), handover=bare), 62) == 62
    fetched = Handover(bare=frozenset({"b"}), fetched=frozenset({"b"}))
    assert encoding.reach(sequence(item("b", 40), handover=fetched), 42) == 42


def test_all_is_let_go_at_once() -> None:
    encoding = Encoding(100)
    asked = sequence(item("a", 60), item("b", 40))
    assert encoding.reach(asked, 104) == 104
    assert encoding.cache.num_held == 100
    encoding.release_all(asked)
    assert (encoding.cache.num_held, asked.held_items) == (0, {})


def test_what_was_asked_for_first_is_let_go_of_and_evicted_first_whatever_its_name() -> None:
    names = [f"picture-{number}" for number in range(20)]
    encoding = Encoding(20)
    asked = sequence(*(item(name, 1) for name in names))
    encoding.reach(asked, 1000)
    encoding.release_all(asked)
    for number, name in enumerate(names):
        encoding.cache.store(f"new-{number}", 1, "someone")
        assert name not in encoding.cache
        assert all(each in encoding.cache for each in names[number + 1 :])

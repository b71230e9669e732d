"""Media that is named and not sent goes to who saw it, to where a hash says, or nowhere."""

import dataclasses

import pytest

from tessera.core.errors import DropReason
from tessera.core.facts import Joined, Left, Load, Scraped
from tessera.core.filters.cached_media import GUESS, MAX_GONE, CachedMediaFilter
from tessera.core.handlers.single_profile import SingleProfileHandler
from tessera.core.media.size import Reason
from tessera.core.parts import MediaItem, Modality, TextPart
from tessera.core.pickers.max_score import MaxScorePicker
from tessera.core.pricing.token import TokenProducer
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.scheduler import Profile, Scheduler
from tessera.core.types import Ending, Outcome
from tessera.core.work import EncodePlan

RNG = SeededRng(1, "r")


def media(uuid, *, sent, link=False):
    return MediaItem(
        modality=Modality.IMAGE,
        format=None,
        identifier=uuid or "content",
        uuid=uuid,
        has_content=sent and not link,
        url_key="url:1" if link else None,
        reason=None if sent and not link else Reason.LINK if link else Reason.UUID_ONLY,
    )


def request_of(build, *items, request_id="r1"):
    priced = [dataclasses.replace(build.item(10, index=i), item=each) for i, each in enumerate(items)]
    return build.priced(5, priced, request_id=request_id)


def sent(build, *uuids, **fields):
    return request_of(build, *(media(uuid, sent=True) for uuid in uuids), **fields)


def named(build, *uuids, **fields):
    return request_of(build, *(media(uuid, sent=False) for uuid in uuids), **fields)


def decide(build, cached, priced, winner, *, others=(8, 9)):
    candidates = [build.candidate(number) for number in (winner, *others)]
    decision = build.decision(priced, build.stage(candidates))
    cached.record(decision)
    return decision


def outcome(decision, number=None, *, status=200, ending=Ending.FINISHED):
    return Outcome(
        request_id=decision.request.request_id,
        ending=ending,
        decision=decision,
        status=status,
        endpoint=None if number is None else f"10.0.0.{number}:8000",
        finished_at=2.0,
    )


def join(build, cached, *numbers):
    for number in numbers:
        cached.observe(Joined(at=0.0, endpoint=build.endpoint(number)))


def kept(build, cached, priced, numbers=(1, 2, 3, 4)):
    candidates = [build.candidate(number) for number in numbers]
    left = cached.keep(priced, candidates, RNG)
    return [numbers[candidates.index(each)] for each in left], cached.explain(priced, candidates, left)


@pytest.fixture
def cached():
    return CachedMediaFilter()


def test_everybody_is_kept_where_everything_is_sent(build, cached):
    decide(build, cached, sent(build, "u"), 1)
    for priced in (
        build.priced(5),
        sent(build, "u"),
        sent(build, None),
        request_of(build, media("u", sent=True, link=True)),
    ):
        assert kept(build, cached, priced) == ([1, 2, 3, 4], None)


def test_a_part_without_anything_is_not_named(build, cached):
    nothing = dataclasses.replace(media(None, sent=False), reason=Reason.NO_CONTENT)
    assert kept(build, cached, request_of(build, nothing)) == ([1, 2, 3, 4], None)


@pytest.mark.parametrize("link", [False, True])
def test_who_was_sent_it_is_kept(build, cached, link):
    for number in (2, 4):
        decide(build, cached, request_of(build, media("u", sent=True, link=link)), number)
    left, note = kept(build, cached, named(build, "u"))
    assert left == [2, 4]
    assert (note.text, note.guess) == ("kept 2 of 4 that saw the media of uuid 'u'", None)


def test_all_of_them_must_be_there(build, cached):
    for number, uuids in ((1, "a"), (2, "ab"), (3, "b")):
        decide(build, cached, sent(build, *uuids), number)
    left, note = kept(build, cached, named(build, "a", "b", "a"))
    assert (left, note.text) == ([2], "kept 1 of 4 that saw the media of uuid 'a' and 1 more")
    left, note = kept(build, cached, named(build, "a", "b"), (1, 3))
    assert (left, note.text) == (
        [],
        "no endpoint holds the media of all of uuid 'a' and 1 more; send its content again",
    )


def test_what_was_never_seen_goes_where_its_hash_says(build, cached):
    chosen = {}
    for number in range(200):
        left, note = kept(build, cached, named(build, f"u{number}"))
        assert note.guess == GUESS
        assert note.text == f"kept 1: uuid 'u{number}' was never seen, so its hash decides"
        chosen[number] = left[0]
    assert {list(chosen.values()).count(number) > 30 for number in (1, 2, 3, 4)} == {True}
    without_4 = {number: kept(build, cached, named(build, f"u{number}"), (3, 2, 1))[0][0] for number in chosen}
    assert all(without_4[number] == where for number, where in chosen.items() if where != 4)


def test_a_hash_decides_among_those_that_hold_the_others(build, cached):
    for number in (2, 3):
        decide(build, cached, sent(build, "seen"), number)
    where = [kept(build, cached, named(build, "seen", f"u{number}"))[0] for number in range(40)]
    assert {each for left in where for each in left} == {2, 3}
    assert {len(left) for left in where} == {1}


def test_a_guess_is_no_knowledge_until_it_is_answered(build, cached):
    join(build, cached, 1)
    decision = decide(build, cached, named(build, "u"), 1)
    assert kept(build, cached, named(build, "u"))[1].guess == GUESS
    cached.settle(outcome(decision, 1, status=None))
    assert kept(build, cached, named(build, "u"))[1].guess == GUESS
    cached.settle(outcome(decision, 1, status=400))
    assert kept(build, cached, named(build, "u"))[1].guess == GUESS
    cached.settle(outcome(decision, 1, status=200))
    assert kept(build, cached, named(build, "u"))[0] == [1]


def test_the_fallback_that_served_has_it_and_the_winner_has_not(build, cached):
    join(build, cached, 1, 2)
    decision = decide(build, cached, sent(build, "u"), 1)
    assert kept(build, cached, named(build, "u"))[0] == [1]
    cached.settle(outcome(decision, 2))
    assert kept(build, cached, named(build, "u"))[0] == [2]


@pytest.mark.parametrize(("status", "ending"), [(400, Ending.FINISHED), (503, Ending.FAILED), (None, Ending.FAILED)])
def test_a_request_that_failed_leaves_nothing(build, cached, status, ending):
    join(build, cached, 1)
    decision = decide(build, cached, sent(build, "u"), 1)
    cached.settle(outcome(decision, 1, status=status, ending=ending))
    assert kept(build, cached, named(build, "u"))[1].guess == GUESS


def test_what_an_engine_no_longer_has_is_forgotten(build, cached):
    join(build, cached, 1)
    decide(build, cached, sent(build, "u"), 1)
    decision = decide(build, cached, named(build, "u", request_id="later"), 1)
    cached.settle(outcome(decision, 1, status=400))
    assert kept(build, cached, named(build, "u"))[1].guess == GUESS


def test_every_stage_that_sees_it_has_it(build, cached):
    encode, decode = (build.stage([build.candidate(n)], profile=name) for n, name in ((1, "encode"), (2, "decode")))
    nobody = build.stage([build.candidate(3)], None, profile="prefill")
    cached.record(build.decision(sent(build, "u"), encode, nobody, decode))
    assert kept(build, cached, named(build, "u"))[0] == [1, 2]


def gone_by_leaving(build, cached):
    cached.observe(Left(at=1.0, endpoint=build.endpoint(1)))


def gone_by_starting_anew(build, cached):
    for started_at in (5.0, 6.0):
        cached.observe(Scraped(at=1.0, endpoint_id="10.0.0.1:8000", load=Load(), process_start_at=started_at))


@pytest.mark.parametrize("go", [gone_by_leaving, gone_by_starting_anew])
def test_what_is_gone_with_its_endpoint_is_refused(build, cached, go):
    decide(build, cached, sent(build, "u"), 1)
    go(build, cached)
    left, note = kept(build, cached, named(build, "new", "u"), (2, 3))
    assert (left, note.guess) == ([], None)
    assert note.text == "no endpoint holds the media of uuid 'u' any more; send its content again"
    decide(build, cached, sent(build, "u"), 3)
    assert kept(build, cached, named(build, "u"))[0] == [3]


def test_what_is_gone_of_one_is_kept_of_another(build, cached):
    for number in (1, 2):
        decide(build, cached, sent(build, "u"), number)
    gone_by_leaving(build, cached)
    assert kept(build, cached, named(build, "u"))[0] == [2]


def test_what_only_others_hold_is_refused(build, cached):
    decide(build, cached, sent(build, "u" * 100), 1)
    left, note = kept(build, cached, named(build, "u" * 100), (2, 3))
    assert left == []
    shown = "u" * 64
    assert note.text == (f"no endpoint that may serve this holds the media of uuid {shown!r}; send its content again")


def test_the_least_recently_used_is_forgotten(build):
    cached = CachedMediaFilter(max_uuids_per_endpoint=2)
    for uuid in "abacb":
        decide(build, cached, sent(build, uuid) if uuid != "a" else sent(build, "a"), 1)
    assert list(cached._held.names("10.0.0.1:8000")) == ["c", "b"]
    decide(build, cached, named(build, "c"), 1)
    decide(build, cached, sent(build, "d"), 1)
    assert list(cached._held.names("10.0.0.1:8000")) == ["c", "d"]


def test_ten_thousand_joins_and_leaves_leave_what_is_gone_and_no_more(build, cached):
    for number in range(10_000):
        endpoint = build.endpoint(number % 250, port=number + 1)
        cached.observe(Joined(at=0.0, endpoint=endpoint))
        uuids = [f"{number} {i}" for i in range(8)]
        decision = build.decision(sent(build, *uuids), build.stage([build.candidate(endpoint=endpoint)]))
        cached.record(decision)
        cached.observe(Left(at=0.0, endpoint=endpoint))
        cached.settle(dataclasses.replace(outcome(decision), endpoint=endpoint.id))
    assert cached._held._caches == {}
    assert len(cached._gone) == MAX_GONE
    assert next(reversed(cached._gone)) == "9999 7"


@pytest.fixture
def router(cached):
    profile = Profile("default", (cached,), (), MaxScorePicker())
    scheduler = Scheduler({"default": profile}, SingleProfileHandler())
    return Router(pricer=TokenProducer(), producers=(), scheduler=scheduler, memories=(cached,))


def ask(build, router, request_id, item, numbers=(1, 2, 3, 4)):
    request = build.request(request_id, prompts=((TextPart(num_bytes=8), item),))
    view = build.view([build.endpoint(number) for number in numbers])
    return router.decide(request, view, 0.0, SeededRng(1, request_id))


def test_on_the_road_the_fallbacks_have_it_too(build, router):
    holders = {ask(build, router, f"r{n}", media("u", sent=True)).primary_stage.winner.id for n in range(3)}
    decision = ask(build, router, "later", media("u", sent=False))
    assert {each.id for each in decision.destinations} == holders
    assert not any(guess.startswith(GUESS) for guess in decision.guesses)


def test_on_the_road_a_guess_is_called_one(build, router):
    decisions = [ask(build, router, f"r{n}", media("u", sent=False)) for n in range(3)]
    assert len({decision.primary_stage.winner.id for decision in decisions}) == 1
    assert [decision.guesses.count(GUESS) for decision in decisions] == [1, 1, 1]


def test_on_the_road_a_refusal_says_what_to_do(build, router):
    winner = ask(build, router, "r1", media("u", sent=True)).primary_stage.winner
    router.observe(Left(at=0.0, endpoint=winner))
    numbers = [n for n in (1, 2, 3, 4) if build.endpoint(n).id != winner.id]
    rejection = ask(build, router, "r2", media("u", sent=False), numbers).rejection
    assert (rejection.reason, rejection.reason.status) == (DropReason.MEDIA_NOT_CACHED, 422)
    assert rejection.filter == "cached-media-filter"
    assert rejection.message == "no endpoint holds the media of uuid 'u' any more; send its content again"


def test_on_the_road_an_empty_pool_is_not_the_clients_fault(build, router):
    rejection = ask(build, router, "r1", media("u", sent=False), ()).rejection
    assert rejection.reason is DropReason.NO_ENDPOINTS


def test_of_media_encoded_apart_each_encoder_has_seen_its_own(build):
    cached, rows = CachedMediaFilter(), [build.candidate(number) for number in (1, 2, 3)]
    plan = EncodePlan({"a": "10.0.0.2:8000", "b": "10.0.0.3:8000"}, is_told=True)
    stages = (build.stage(rows, 0, "decode"), build.stage(rows, 1, "encode", encodes=plan))
    decision = build.decision(sent(build, "a", "b", "c"), *stages, primary="decode")
    cached.record(decision)
    seen = [[each.endpoint.id for each in cached.keep(named(build, uuid), rows, RNG)] for uuid in "abc"]
    assert seen == [["10.0.0.1:8000", "10.0.0.2:8000"], ["10.0.0.1:8000", "10.0.0.3:8000"], ["10.0.0.1:8000"]]
    # What failed was seen by nobody for certain: a hash decides.
    cached.settle(outcome(decision, status=500))
    assert all(len(cached.keep(named(build, uuid), rows, RNG)) == 1 for uuid in "abc")
    assert cached.explain(named(build, "a"), rows, rows[:1]).guess == GUESS

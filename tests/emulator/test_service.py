"""Do prompts queue for the accelerator, and do answers share it?"""

import pytest

from tessera.emulator.service import MAX_TOKENS_PER_ADVANCE, Service, ServiceTime, Work

TIME = ServiceTime(
    prefill_tokens_per_s=1000,
    encode_s_per_embed=0.001,
    decode_step_s=0.5,
    decode_step_s_per_running=0.25,
    overhead_s=0,
    max_running=2,
)


def work(num_prompt_tokens: int = 1000, num_embeds: int = 0, num_output_tokens: int = 2) -> Work:
    return Work(num_prompt_tokens=num_prompt_tokens, num_embeds=num_embeds, num_output_tokens=num_output_tokens)


def service(time: ServiceTime = TIME, num_blocks: int = 1000) -> Service:
    return Service(time, num_blocks, 16)


def times(service: Service, until: float) -> list[tuple[Work, float]]:
    return [(token.work, token.at) for token in service.advance(until)]


def test_a_lone_answer() -> None:
    engine, lone = service(), work(num_embeds=500)
    assert engine.next_at() is None
    engine.submit(lone, at=10.0)
    assert engine.next_at() == 11.5
    assert engine.advance(11.4) == []
    tokens = engine.advance(100.0)
    assert [(token.position, token.at, token.gap_s) for token in tokens] == [(0, 11.5, 1.5), (1, 12.0, 0.5)]
    assert [token.is_last for token in tokens] == [False, True]
    assert lone.is_finished
    assert engine.running == set()
    assert engine.next_at() is None


def test_prompts_are_computed_one_after_the_other() -> None:
    engine, big, small = service(), work(4000, num_output_tokens=1), work(100, num_output_tokens=1)
    engine.submit(big, at=0.0)
    engine.submit(small, at=0.1)
    assert (len(engine.running), len(engine.waiting)) == (1, 1)
    assert times(engine, 10.0) == [(big, 4.0), (small, 4.1)]


def test_answers_slow_each_other_down() -> None:
    engine, first, second = service(), work(num_output_tokens=4), work(num_output_tokens=2)
    engine.submit(first, at=0.0)
    engine.submit(second, at=0.0)
    # The second prompt is computed from 1 to 2; each step until the second ends takes 0.75 s.
    assert times(engine, 10.0) == [
        (first, 1.0),
        (first, 1.75),
        (second, 2.0),
        (first, 2.5),
        (second, 2.75),
        (first, 3.25),
    ]


def test_no_more_than_max_running() -> None:
    engine = service()
    works = [work(10, num_output_tokens=3) for _ in range(3)]
    for each in works:
        engine.submit(each, at=0.0)
    engine.advance(0.02)
    assert (len(engine.running), len(engine.waiting)) == (2, 1)
    tokens = engine.advance(10.0)
    ends = {token.work: token.at for token in tokens if token.is_last}
    assert works[2].started_at == ends[works[0]]


def test_a_prompt_waits_for_room_in_the_cache() -> None:
    engine, first, second = service(num_blocks=100), work(1000, num_output_tokens=1), work(1000, num_output_tokens=1)
    engine.submit(first, at=0.0)
    engine.submit(second, at=0.0)
    assert engine.kv_usage_fraction == pytest.approx(63 / 100)
    assert times(engine, 10.0) == [(first, 1.0), (second, 2.0)]
    assert engine.kv_usage_fraction == 0.0
    lone = work(5000, num_output_tokens=1)
    engine.submit(lone, at=10.0)
    assert engine.kv_usage_fraction == 1.0
    assert times(engine, 20.0) == [(lone, 15.0)]


def test_the_overhead_is_not_the_accelerators() -> None:
    engine = service(ServiceTime(prefill_tokens_per_s=1000, overhead_s=0.5))
    works = [work(100, num_output_tokens=1) for _ in range(2)]
    for each in works:
        engine.submit(each, at=0.0)
    assert [at for _, at in times(engine, 10.0)] == [pytest.approx(0.6), pytest.approx(0.7)]


def test_speed_divides_every_time() -> None:
    slow, fast = service(ServiceTime()), service(ServiceTime(speed=10))
    for engine in (slow, fast):
        engine.submit(work(1000, 1000, 5), at=0.0)
        engine.submit(work(1000, 1000, 5), at=0.0)
    slow_times = [at for _, at in times(slow, 1000.0)]
    assert [at * 10 for _, at in times(fast, 1000.0)] == pytest.approx(slow_times)


def test_an_abort_of_a_prompt_frees_the_accelerator_at_once() -> None:
    engine, gone, next_one = service(), work(num_output_tokens=9), work(num_output_tokens=1)
    engine.submit(gone, at=0.0)
    engine.submit(next_one, at=0.0)
    engine.abort(gone, 0.5)
    assert times(engine, 10.0) == [(next_one, 1.5)]


def test_an_abort_of_an_answer_lets_the_others_run_faster() -> None:
    engine, gone, other = service(), work(num_output_tokens=9), work(num_output_tokens=3)
    engine.submit(gone, at=0.0)
    engine.submit(other, at=0.0)
    engine.advance(2.0)
    engine.abort(gone, 2.1)
    assert engine.running == {other}
    # The step from 2.0 began beside the aborted answer, the next one did not.
    assert times(engine, 10.0) == [(other, 2.75), (other, 3.25)]


def test_an_abort_in_the_queue() -> None:
    engine, first, gone, last = service(), *(work(num_output_tokens=1) for _ in range(3))
    for each in (first, gone, last):
        engine.submit(each, at=0.0)
    engine.abort(gone, 0.5)
    engine.abort(gone, 0.5)
    assert times(engine, 10.0) == [(first, 1.0), (last, 2.0)]


def test_one_call_returns_a_bounded_number_of_tokens() -> None:
    engine = service(ServiceTime(speed=1e6))
    engine.submit(work(num_output_tokens=MAX_TOKENS_PER_ADVANCE + 5), at=0.0)
    assert len(engine.advance(1e9)) == MAX_TOKENS_PER_ADVANCE
    assert len(engine.advance(1e9)) == 5

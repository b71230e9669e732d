"""Logs: what they say, and how they are asked again."""

import json
from itertools import islice

import pytest

from tessera.core.errors import ConfigError
from tessera.sim.advice.asked import read_question
from tessera.sim.advice.crossover import variants_of
from tessera.sim.advice.log import read_log
from tessera.sim.content import Image
from tessera.sim.workloads.trace import MAX_LINE_CHARS


def request(at, *pictures, text="q", tokens=10, output=20):
    parts = [{"image": name, "width": width, "height": height} for name, width, height in pictures]
    parts.append({"text": text, "tokens": tokens})
    return {"at": at, "output_tokens": output, "messages": [{"role": "user", "parts": parts}]}


def decision(at, *items, tokens=30):
    return {"request_id": "r", "wall_at": at, "priced": {"items": list(items), "num_text_tokens": tokens}}


def item(name, width=1280, height=720, modality="image"):
    return {"identifier": name, "width": width, "height": height, "modality": modality, "num_embeds": 880}


@pytest.fixture(name="write")
def _write(tmp_path):
    def write(*lines, name="log.jsonl"):
        path = tmp_path / name
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        return path

    return write


def images(ask):
    return [part for message in ask.messages for part in message.parts if isinstance(part, Image)]


def test_sizes_reuse_lengths_and_rates_of_a_trace(write):
    small, large = ("a", 100, 50), ("b", 1280, 720)
    path = write(
        request(0, small, large, tokens=10, output=100),
        request(30, small, tokens=20, output=200),
        request(50, ("c", 1280, 720), tokens=30, output=300),
        request(200, tokens=40, output=400),
    )
    _, found = read_log(path)
    assert (found.num_requests, found.span_s, found.mean_rate) == (4, 200.0, 3 / 200)
    # Three within the first minute.
    assert found.busiest_rate == 3 / 60
    assert found.pictures_mean == 1.0
    assert found.sizes == (("100x50", 0.5), ("1280x720", 0.5))
    assert found.typical_size == (1280, 720)
    # Four pictures, one of which came before.
    assert found.picture_reuse == 0.25
    assert (found.text_tokens_mean, found.output_tokens_mean) == (25, 250)
    assert found.output_tokens_p90 == pytest.approx(370)
    assert found.has_text


def test_decisions_newest_first_as_the_router_tells_them(write):
    path = write(decision(100.0, item("a")), decision(40.0, item("a"), item("b", None, None)), decision(10.0))
    replay, found = read_log(path, output_tokens=77)
    assert [len(images(ask)) for ask in replay.recorded] == [0, 2, 1]
    assert {ask.num_output_tokens for ask in replay.recorded} == {77}
    assert (found.num_requests, found.span_s, found.picture_reuse, found.num_unsized) == (3, 90.0, 1 / 3, 1)
    # 880 embeddings of 32 x 32 pixels: 949 squared.
    assert ("949x949", 1 / 3) in found.sizes
    assert not found.has_text


def test_clips_are_left_out_and_counted(write):
    _, found = read_log(write(decision(1.0, item("a")), decision(2.0, item("v", modality="video"))), 5)
    assert (found.num_requests, found.num_left_out) == (1, 1)
    assert (found.mean_rate, found.busiest_rate) == (None, None)


def test_a_log_is_asked_again_with_new_content_and_its_own_reuse(write):
    replay, _ = read_log(write(request(0, ("a", 64, 32)), request(1, ("a", 64, 32)), request(2, ("b", 64, 32))))
    workload = replay.make("0")
    keys = [images(ask)[0].key for stage in (0, 1) for ask in islice(workload.asks(stage), 6)]
    # Four turns, in each of which two pictures are new.
    assert len(set(keys)) in (8, 9)
    again = replay.make("0")
    assert [images(ask)[0].key for ask in islice(again.asks(0), 6)] == keys[:6]


def test_other_sizes_scale_every_picture(write):
    asked = read_question(write(request(0, ("a", 1280, 720), ("b", 640, 360), ("c", 1280, 720)), request(5)))
    assert (asked.num_pictures, asked.size) == (1.5, (1280, 720))
    labels = [variant.label for variant in variants_of(asked)]
    assert labels == ["1280x720", "1920x1080", "2560x1440", "3840x2160"]
    largest = variants_of(asked)[-1].workload
    sizes = {(image.width, image.height) for ask in islice(largest.make("0").asks(0), 2) for image in images(ask)}
    assert sizes == {(3840, 2160), (1920, 1080)}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no request"),
        (["nonsense\n"], "line 1 is no JSON"),
        ([[1]], "line 1: expected a JSON object"),
        ([{"at": 1}], "a trace's {at, output_tokens, messages} or a Decision's"),
        ([{"messages": []}], "line 1"),
        ([decision("x", item("a"))], "line 1: no whole Decision"),
        ([{"wall_at": 1, "priced": {}}], "line 1: no whole Decision"),
        ([{"wall_at": 1, "priced": None}], "line 1: no whole Decision"),
        ([decision(float("nan"), item("a"))], r"wall_at \(Unix seconds\)"),
        ([decision(1, *[item("a")] * 1025)], "items, at most 1024"),
        (["[" * 5000 + "\n"], "line 1 is no JSON"),
        ([json.dumps({"at": 1, "x": "y" * MAX_LINE_CHARS})], "line 1: at most 100,000 lines"),
    ],
)
def test_what_is_no_log_is_told_by_its_line(write, lines, message):
    with pytest.raises(ConfigError, match="(?s).*" + message.replace("{", r"\{")):
        read_log(write(*lines), 5)


def test_a_decision_does_not_know_its_answer(write):
    with pytest.raises(ConfigError, match="give --output-tokens"):
        read_log(write(decision(1.0, item("a"))))

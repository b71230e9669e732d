"""Photos, documents, mixtures, sizes and traces, as a client would ask them."""

import json
import statistics
from collections import Counter
from itertools import islice

import pytest

from tessera.core.errors import ConfigError
from tessera.sim.content import Ask, Image, Message, Text
from tessera.sim.workload import decode_workload, located, workload_types


def asks(number, type_name, stage=0, seed="0", **parameters):
    made = decode_workload({"type": type_name, **parameters}, "workload").make(seed)
    return list(islice(made.asks(stage), number))


def images(ask):
    return [part for message in ask.messages for part in message.parts if isinstance(part, Image)]


def shape(ask):
    """Roles and parts in order, text by its tokens."""
    return [
        (message.role, [part.num_tokens if isinstance(part, Text) else "image" for part in message.parts])
        for message in ask.messages
    ]


def test_photos_then_a_question():
    (ask,) = asks(1, "photos", num_photos=3)
    assert shape(ask) == [("system", [64]), ("user", ["image", "image", "image", 200])]
    assert (images(ask)[0].width, images(ask)[0].height, ask.num_output_tokens) == (1920, 1080, 120)


def test_a_question_then_photos():
    (ask,) = asks(1, "photos", order="question-first", closing_tokens=16)
    assert shape(ask) == [("system", [64]), ("user", [200, "image", 16])]


def test_photos_come_back_and_questions_do_not():
    many = asks(3000, "photos", num_photos=2)
    photos = Counter(image.key for ask in many for image in images(ask))
    # Of 4,000 the first has 1 / sum(n ** -0.8) = 0.0476 of 6,000 draws: 286 +- 16; five deviations.
    assert 200 < photos["0-photo-0"] < 370
    questions = {part.key for ask in many for part in ask.messages[1].parts if isinstance(part, Text)}
    assert len(questions) == 3000
    orders = Counter(tuple(image.key for image in images(ask)) for ask in many)
    hot = ("0-photo-0", "0-photo-1")
    assert orders[hot] > 0
    assert orders[hot[::-1]] > 0


def test_documents_are_never_the_same_but_for_the_system_prompt():
    many = asks(50, "documents") + asks(50, "documents", stage=1)
    assert shape(many[0]) == [("system", [300]), ("user", ["image"] * 8 + [60])]
    assert len({image.key for ask in many for image in images(ask)}) == 800
    assert len({ask.messages[0] for ask in many}) == 1


def test_chats_of_text_of_many_lengths():
    many = asks(2000, "documents", num_pages=0, min_question_tokens=300, max_question_tokens=1500)
    lengths = [ask.messages[1].parts[0].num_tokens for ask in many]
    assert min(lengths) >= 300
    assert max(lengths) <= 1500
    # Even between 300 and 1,500: 900 +- 346 / sqrt(2000).
    assert abs(statistics.fmean(lengths) - 900) < 5 * 7.8


def test_a_mixture_keeps_its_shares():
    parts = [
        {"share": 1, "workload": {"type": "documents", "num_pages": 2}},
        {"share": 4, "workload": {"type": "documents", "num_pages": 0}},
    ]
    many = asks(5000, "mixture", parts=parts)
    num_documents = sum(bool(images(ask)) for ask in many)
    # 5,000 draws of one in five: 1,000 +- 28; five deviations.
    assert 860 < num_documents < 1140
    keys = [part.key for ask in many for part in ask.messages[1].parts]
    assert len(set(keys)) == len(keys)


def test_sizes_are_lognormal_within_their_bounds():
    many = [image for ask in asks(3000, "heavy-tail") for image in images(ask)]
    widths = [image.width for image in many]
    assert 640 < statistics.median(widths) < 760
    assert (min(widths), max(widths)) == (64, 3840)
    assert all(image.height == round(image.width * 9 / 16) and not image.is_link for image in many)
    counted = Counter(image.key for image in many)
    num_known = sum(count for key, count in counted.items() if "catalogue" in key)
    # About 7,500 pictures, three in ten of the catalogue: +- 0.0053; five deviations.
    assert abs(num_known / len(many) - 0.3) < 0.027
    assert all(count == 1 for key, count in counted.items() if "catalogue" not in key)
    assert Counter(len(images(ask)) for ask in asks(400, "heavy-tail")).keys() == {1, 2, 3, 4}


def test_links_are_the_same_pictures():
    inline, links = asks(20, "heavy-tail"), asks(20, "heavy-tail", delivery="link")
    for one, other in zip(inline, links, strict=True):
        assert [(image.key, image.width) for image in images(one)] == [(i.key, i.width) for i in images(other)]
        assert all(image.is_link for image in images(other))


LINES = [
    {"at": 0.5, "output_tokens": 9, "messages": [{"role": "user", "parts": [{"text": "q", "tokens": 5}]}]},
    {
        "at": 2.0,
        "output_tokens": 3,
        "messages": [{"role": "user", "parts": [{"image": "p", "width": 64, "height": 36, "is_link": True}]}],
    },
]


def trace(tmp_path, lines):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return decode_workload({"type": "trace", "path": str(path)}, "workload")


def test_a_trace_is_asked_in_its_order_and_again(tmp_path):
    made = trace(tmp_path, LINES)
    first = Ask((Message("user", (Text("q", 5),)),), 9)
    second = Ask((Message("user", (Image("p", 64, 36, is_link=True),)),), 3)
    assert list(islice(made.make("0").asks(0), 3)) == [first, second, first]
    assert made.gaps() == (0.5, 1.5)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no request"),
        (["{"], "line 1 is no JSON"),
        ([LINES[1], LINES[0]], "line 2: at is 0.5, before that of the line above"),
        ([LINES[0] | {"more": 1}], "line 1"),
        ([LINES[0] | {"output_tokens": 0}], "expected at least 1"),
        (
            [
                LINES[1],
                LINES[1] | {"messages": [{"role": "user", "parts": [{"image": "p", "width": 64, "height": 37}]}]},
            ],
            "line 2: picture 'p' is 64x37 and was 64x36 before; give each picture a name of its own",
        ),
        ([LINES[0] | {"at": 1e308}], "expected at most 1000000000"),
        ([LINES[0] | {"messages": [{"role": "user", "parts": [{}]}]}], "a part is either"),
        ([LINES[0] | {"messages": []}], "line 1 asks nothing"),
        (["[" * 100_000], "line 1 is no JSON"),
        (["x" * ((1 << 20) + 1)], "at most 1,000,000 lines"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path, lines, message):
    with pytest.raises(ConfigError) as error:
        trace(tmp_path, lines)
    assert message in str(error.value.problems[0])


def test_a_trace_that_is_not_there():
    with pytest.raises(ConfigError, match="cannot read nowhere"):
        decode_workload({"type": "trace", "path": "nowhere"}, "workload")


def test_paths_are_relative_to_the_scenario(tmp_path):
    data = {"type": "mixture", "parts": [{"share": 1, "workload": {"type": "trace", "path": "a.jsonl"}}]}
    found = located(data, tmp_path)
    assert found["parts"][0]["workload"]["path"] == str(tmp_path / "a.jsonl")
    assert found["type"] == "mixture"


@pytest.mark.parametrize("type_name", [name for name in workload_types() if name not in {"mixture", "trace"}])
def test_the_same_seed_asks_the_same(type_name):
    assert asks(30, type_name) == asks(30, type_name)
    assert asks(30, type_name) != asks(30, type_name, seed="1")


def test_an_unknown_workload_names_the_nearest():
    with pytest.raises(ConfigError) as error:
        decode_workload({"type": "photo"}, "workload")
    assert "did you mean 'photos'?" in str(error.value.problems[0])

from collections import Counter
from itertools import islice

import pytest

from tessera.core.errors import ConfigError
from tessera.sim.content import Image, Text
from tessera.sim.workload import decode_workload


def asks(number, stage=0, seed="0", **parameters):
    made = decode_workload({"type": "shared-prefix", **parameters}, "workload").make(seed)
    return list(islice(made.asks(stage), number))


def group_of(ask):
    return ask.messages[0].parts[-2].key


def question_of(ask):
    return ask.messages[0].parts[-1].key


def test_a_prompt_is_three_pictures_the_groups_text_and_a_question():
    (ask,) = asks(1)
    (message,) = ask.messages
    assert message.role == "user"
    assert [type(part) for part in message.parts] == [Image, Image, Image, Text, Text]
    assert {(part.width, part.height) for part in message.parts[:3]} == {(1280, 720)}
    assert len({part.key for part in message.parts[:3]}) == 3
    assert [part.num_tokens for part in message.parts[3:]] == [111, 1200]
    assert ask.num_output_tokens == 300


def test_3000_prompts_of_600_groups_in_no_order():
    all_of_them = asks(3000)
    assert len({question_of(ask) for ask in all_of_them}) == 3000
    assert set(Counter(map(group_of, all_of_them)).values()) == {5}
    assert len({group_of(ask) for ask in all_of_them[:600]}) > 300


def test_every_stage_begins_with_the_first_prompt_and_goes_round():
    made = decode_workload({"type": "shared-prefix", "num_groups": 2, "num_prompts_per_group": 2}, "w").make("0")
    first, second = (list(islice(made.asks(stage), 6)) for stage in (0, 1))
    assert first == second
    # The same objects: their bodies are read once.
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert first[4:] == first[:2]


def test_new_questions_to_the_same_groups_in_the_same_order():
    parameters = {"num_groups": 3, "num_prompts_per_group": 2, "questions": "new"}
    first, second = asks(12, 0, **parameters), asks(12, 1, **parameters)
    assert [group_of(ask) for ask in first] == [group_of(ask) for ask in second]
    assert len({question_of(ask) for ask in first + second}) == 24
    assert asks(12, 0, **parameters) == first


def test_another_seed_has_other_content_in_another_order():
    one, other = asks(50, seed="0"), asks(50, seed="1")
    assert not {group_of(ask) for ask in one} & {group_of(ask) for ask in other}
    assert [group_of(a).split("-")[-1] for a in one] != [group_of(a).split("-")[-1] for a in other]


def test_hot_groups():
    drawn = Counter(group_of(ask) for ask in asks(4000, questions="new", zipf=1.1))
    # The first of 600 has 1 / sum(n ** -1.1) = 0.188 of the draws: 752 +- 25; five deviations.
    assert 625 < drawn["0-group-0"] < 880
    # The second has 2 ** -1.1 of that, 351 +- 18.
    assert 260 < drawn["0-group-1"] < 445


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"zipf": 1.0}, "zipf needs questions: new"),
        ({"num_groups": 0}, "expected at least 1"),
        ({"pictures": 3}, "unknown key"),
        ({"questions": "old"}, "'repeated' or 'new'"),
    ],
)
def test_what_cannot_be_meant_is_refused(parameters, message):
    with pytest.raises(ConfigError) as error:
        asks(1, **parameters)
    assert message in str(error.value.problems[0])

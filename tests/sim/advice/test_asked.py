"""Workload files, and what is wrong with them."""

from pathlib import Path

import pytest

from tessera.core.errors import ConfigError
from tessera.sim.advice.asked import parse_question, read_question
from tessera.sim.workloads.repeats import Repeats

EXAMPLES = Path(__file__).parents[3] / "examples" / "workloads"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_workload_can_be_asked(path):
    asked = read_question(path)
    assert asked.name == path.stem
    assert asked.description
    assert asked.measured is None


def test_what_a_file_says():
    asked = read_question(EXAMPLES / "documents-4k.yaml")
    assert asked.workload == Repeats(num_pictures=2, width=3840, height=2160, question_tokens=60, output_tokens=150)
    assert (asked.num_pictures, asked.size, asked.rate) == (2, (3840, 2160), 2.0)
    assert (asked.ttft_s, asked.tpot_s) == (None, 0.05)


def test_the_least_that_must_be_said():
    asked = parse_question("{prompt_tokens: 5, output_tokens: 6}", "x")
    assert asked.workload == Repeats(width=1280, height=720, question_tokens=5, output_tokens=6)
    assert (asked.rate, asked.ttft_s, asked.tpot_s) == (None, None, None)


LEAST = "prompt_tokens: 5\noutput_tokens: 6\n"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("[1]", "", "got a list, expected a mapping with pictures"),
        (LEAST + "size: 4K", "size", "got '4K', expected WIDTHxHEIGHT, 1 to 16384 pixels a side"),
        (LEAST + "size: 0x800", "size", "got 2048, expected"),
        (LEAST + "size: 640 x 0", "size", "got '640 x 0'"),
        (LEAST + "size: 99999x9", "size", "got '99999x9'"),
        (LEAST + "size: 7", "size", "got 7, expected"),
        (LEAST + "pictures: 65", "pictures", "at most 64"),
        (LEAST + "picture: 1", "picture", "pictures"),
        (LEAST + "reuse: 30", "reuse", "at most 1"),
        (LEAST + "objectives: {tpot: 0}", "objectives.tpot", "more than 0"),
        ("output_tokens: 5", "prompt_tokens", ""),
    ],
)
def test_each_problem_is_told_with_its_place(text, path, message):
    with pytest.raises(ConfigError) as caught:
        parse_question(text, "x")
    told = {problem.path: problem.message for problem in caught.value.problems}
    assert message in told[path]


def test_the_length_of_answers_stands_in_the_file():
    with pytest.raises(ConfigError, match="in YAML say output_tokens"):
        read_question(EXAMPLES / "photos-720p.yaml", 100)

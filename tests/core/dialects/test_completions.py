"""What a text completion asks, in each of the four shapes of its prompt."""

import json

import pytest

from tessera.core.dialects.completions import MAX_PROMPTS, CompletionsDialect
from tessera.core.draft import DraftText, DraftTokens
from tessera.core.types import ModelProfile


def parse(**body):
    return CompletionsDialect().parse(json.dumps(body).encode(), ModelProfile())


def text(content):
    return [DraftText(text=content)]


def ids(*token_ids):
    return [DraftTokens(token_ids=list(token_ids))]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Once", [text("Once")]),
        ("", [text("")]),
        (["a", "b", ""], [text("a"), text("b"), text("")]),
        ([1, 2, 3], [ids(1, 2, 3)]),
        ([[1, 2], [3]], [ids(1, 2), ids(3)]),
        ([["no", "nesting"], [1], "a", []], [ids(1), text("a")]),
        ([1, "mixed", [2]], [text("mixed"), ids(2)]),
        ([1, True], []),
        ([1.5], []),
        ([], []),
        (None, []),
        (3, []),
        ({"text": "x"}, []),
    ],
)
def test_each_string_or_id_list_is_a_prompt(prompt, prompts):
    assert parse(prompt=prompt).prompts == prompts


def test_fields_of_the_request():
    draft = parse(model="m", prompt="p", stream=True, max_tokens=9, n=4, cache_salt="s")
    assert (draft.dialect, draft.model, draft.stream, draft.max_output_tokens) == ("completions", "m", True, 9)
    assert (draft.num_choices, draft.cache_salt, draft.guesses) == (4, "s", [])
    assert [parse(prompt="p", n=n).num_choices for n in (1024, 1025)] == [1024, 1]
    draft = parse(prompt="p", n=5000, max_tokens=0, stream=1)
    assert (draft.num_choices, draft.max_output_tokens, draft.stream) == (1, None, False)


@pytest.mark.parametrize(("embeds", "is_marked"), [("AAAA", True), (["AAAA", "BBBB"], True), (None, False)])
def test_a_prompt_of_tensors_is_no_text_and_is_marked(embeds, is_marked):
    draft = parse(prompt="p", prompt_embeds=embeds)
    assert (draft.prompts, draft.guesses) == ([text("p")], ["part-unread:prompt_embeds"] * is_marked)


def test_prompts_beyond_the_limit_are_not_looked_at_and_marked():
    draft = parse(prompt=["a"] * (MAX_PROMPTS + 3))
    assert len(draft.prompts) == MAX_PROMPTS
    assert draft.guesses == ["prompts-unread:3"]
    assert parse(prompt=["a"] * MAX_PROMPTS).guesses == []

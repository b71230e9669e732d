"""The text of every recorded conversation is the one that the real engine's template made."""

from functools import cache
from pathlib import Path

import pytest

from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.core.reading import dialect_of
from tessera.core.rendering.prompt import PromptRenderer
from tessera.core.types import ModelProfile

from .conftest import golden, template

DATA = Path(__file__).parent / "data"
CHATS = golden(DATA / "chat-prompts.json")
OTHERS = golden(DATA / "converted-prompts.json")


@pytest.fixture(scope="module")
def text_of(tokenizer, body_of):
    """The text of a recorded request by a template's source."""

    @cache
    def renderer(source, special_tokens, wraps_parts):
        compiled = template(source, **dict(special_tokens))
        return PromptRenderer(
            tokenizer=tokenizer,
            template=compiled,
            tool_template=compiled,
            placeholders=Qwen3VL.placeholders,
            wraps_parts=wraps_parts,
        )

    def text(recorded, path, source, special_tokens, wraps_parts=None):
        draft = dialect_of(path).parse(body_of(recorded["body"]), ModelProfile())
        return renderer(source, tuple(special_tokens.items()), wraps_parts).text(draft.chat(), 0.0)

    return text


@pytest.mark.parametrize("recorded", CHATS["requests"], ids=lambda recorded: recorded["name"])
def test_the_text_of_a_chat(recorded, text_of):
    text = text_of(recorded, "/v1/chat/completions", CHATS["chat_template"], CHATS["special_tokens"])
    assert text == recorded["prompt_text"]


@pytest.mark.parametrize(
    "recorded", OTHERS["requests"], ids=lambda recorded: f"{recorded['template']}-{recorded['name']}"
)
def test_the_text_of_what_the_engine_makes_a_chat_of(recorded, text_of):
    chosen = OTHERS["templates"][recorded["template"]]
    text = text_of(recorded, recorded["path"], chosen["source"], OTHERS["special_tokens"], chosen["wraps_parts"])
    assert text == recorded["prompt_text"]


def test_there_are_many():
    assert len(CHATS["requests"]) == 57
    assert len(OTHERS["requests"]) == 154

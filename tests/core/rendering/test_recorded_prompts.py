"""The text of every recorded chat completion is the one that the real engine's template made."""

from pathlib import Path

import pytest

from tessera.core.dialects.chat import ChatDialect
from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.core.rendering.conversation import conversation, tool_definitions
from tessera.core.types import ModelProfile

from .conftest import golden, template

RECORDED = golden(Path(__file__).parent / "data" / "chat-prompts.json")
TEMPLATE = template(RECORDED["chat_template"], **RECORDED["special_tokens"])


@pytest.mark.parametrize("recorded", RECORDED["requests"], ids=lambda recorded: recorded["name"])
def test_the_text_is_the_engines(recorded, body_of):
    chat = ChatDialect().parse(body_of(recorded["body"]), ModelProfile()).chat
    messages = conversation(
        chat.messages,
        wraps_parts=TEMPLATE.wraps_parts,
        placeholders={modality: each.text for modality, each in Qwen3VL.placeholders.items()},
        knows_developer=TEMPLATE.knows_developer,
    )
    text = TEMPLATE.render(
        messages,
        tools=tool_definitions(chat.tools),
        add_generation_prompt=chat.add_generation_prompt is not False,
        continues=chat.continue_final_message is True,
        kwargs=chat.chat_template_kwargs or {},
        wall_at=0.0,
    )
    assert text == recorded["prompt_text"]


def test_there_are_many():
    assert len(RECORDED["requests"]) == 57

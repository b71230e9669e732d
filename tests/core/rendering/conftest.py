"""A renderer by a tokenizer of single bytes, with Qwen's markers and a template like Qwen3-VL's."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.core.rendering.chat_template import ChatTemplate
from tessera.core.rendering.prompt import PromptRenderer
from tessera.core.tokenizer import TextTokenizer

from ...models import MARKERS

PAD = 256 + MARKERS.index("<|image_pad|>")


def strftime(form, wall_at):
    return datetime.fromtimestamp(wall_at, UTC).strftime(form)


def template(source, **special_tokens):
    return ChatTemplate(source, special_tokens=special_tokens, strftime=strftime)


@dataclass
class Memo:
    """Remembers everything, and counts what it was asked."""

    known: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    num_hits: int = 0

    def get(self, digest):
        found = self.known.get(digest)
        self.num_hits += found is not None
        return found

    def put(self, digest, token_ids):
        self.known[digest] = tuple(token_ids)


@pytest.fixture(scope="session")
def tokenizer(model_folder):
    return TextTokenizer((model_folder / "tokenizer.json").read_bytes())


@pytest.fixture(scope="session")
def renderer(tokenizer, model_folder):
    made = template((model_folder / "chat_template.jinja").read_text())
    return PromptRenderer(tokenizer=tokenizer, template=made, tool_template=made, placeholders=Qwen3VL.placeholders)


@pytest.fixture
def memo():
    return Memo()


def ids_of(text):
    """The ids of a text by hand: bytes, and the markers' own."""
    ids = []
    while text:
        marker = next((each for each in MARKERS if text.startswith(each)), None)
        ids += [256 + MARKERS.index(marker)] if marker else list(text[0].encode())
        text = text[len(marker) if marker else 1 :]
    return tuple(ids)


def golden(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="session")
def body_of():
    return lambda body: json.dumps(body).encode()

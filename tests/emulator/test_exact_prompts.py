"""Are a prompt's tokens the model's own where its files are there, and is it said where they are not?"""

import base64
import io
import json
from dataclasses import replace

import aiohttp
import pytest
from PIL import Image

from tessera.config.load import load_text
from tessera.core.errors import ConfigError
from tessera.core.media.mm_hash import HashFactors
from tessera.core.router import Router
from tessera.emulator import Emulator, EmulatorSettings
from tessera.emulator.prompts import FIRST_STAND_IN
from tessera.emulator.reading import Reader
from tessera.emulator.refusals import Refusal
from tessera.emulator.served_model import read_prompt_rules

from ..models import write_model

MODEL = "org/model"
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-producer
  parameters:
    estimate: {{model: {{path: {folder}, engineModel: {model}}}}}
    tokenizer: {{path: {folder}}}
- {{type: precise-prefix-cache-producer}}
"""


@pytest.fixture
def settings(model_folder):
    rules = read_prompt_rules(model_folder)
    return EmulatorSettings(
        model="m", root=MODEL, family=rules.family, renderer=rules.renderer, max_model_len=4096, speed=100
    )


def png(seed=0):
    file = io.BytesIO()
    Image.new("RGB", (256, 256), (seed, 0, 0)).save(file, "PNG")
    return file.getvalue()


def picture(content):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(content).decode()}}


def chat(*parts, **rest):
    return json.dumps({"messages": [{"role": "user", "content": list(parts)}]} | rest).encode()


def read(settings, body, *, is_chat=True):
    return Reader(settings).read(body, is_chat=is_chat, wall_at=0.0).prompts


def test_a_chat_is_rendered_and_its_picture_expanded(settings):
    content = png()
    (prompt,) = read(settings, chat(picture(content), "What is it?", cache_salt="s"))
    # "<|im_start|>user\n", a marker, 64 cells, a marker, the text, the end and "assistant\n".
    assert prompt.num_tokens == 6 + 1 + 64 + 1 + 11 + 2 + 1 + 10
    assert (prompt.offsets, prompt.cache_salt, prompt.stand_in) == ((7,), "s", None)
    assert list(prompt.token_ids[1:6]) == list(b"user\n")
    # The last of the six special tokens behind 256 bytes.
    assert set(prompt.token_ids[7:71]) == {261}
    hashed = HashFactors(engine_model=MODEL).image_hash(len(content), "RGB")
    hashed.update(content)
    assert prompt.items[0].identifier == hashed.hexdigest()


def test_the_router_foresees_the_same_tokens_and_names(settings, model_folder):
    loaded = load_text(CONFIG.format(folder=model_folder, model=MODEL))
    body = chat(picture(png()), "one", picture(png(1)), "two")
    request, draft = Router.read(
        body, {":path": "/v1/chat/completions"}, loaded.profile, request_id="r", at=0.0, wall_at=0.0
    )

    class Memo:
        def get(self, digest):
            return None

        def put(self, digest, token_ids):
            pass

    foreseen = loaded.router.tokenise(request, draft, Memo())
    (prompt,) = read(settings, body)
    assert tuple(prompt.token_ids) == foreseen.token_ids
    assert prompt.offsets == tuple(span.offset for span in foreseen.spans)
    assert [item.identifier for item in prompt.items] == [each.item.identifier for each in foreseen.items]


def test_prompts_of_a_completion_each_have_their_own(settings):
    prompts = read(settings, json.dumps({"prompt": ["ab", "c"]}).encode(), is_chat=False)
    assert [list(prompt.token_ids) for prompt in prompts] == [[97, 98], [99]]
    (given,) = read(settings, json.dumps({"prompt": [5, 6, 7]}).encode(), is_chat=False)
    assert (list(given.token_ids), given.stand_in) == ([5, 6, 7], None)


@pytest.mark.parametrize("token_id", [-1, 1 << 31])
def test_ids_that_no_model_has_are_refused(settings, token_id):
    for each in (settings, EmulatorSettings(model="m")):
        with pytest.raises(Refusal, match=f"Token id {token_id} is out of vocabulary"):
            read(each, json.dumps({"prompt": [1, token_id]}).encode(), is_chat=False)


def test_a_linked_picture_has_a_name_too(settings):
    (prompt,) = read(settings, chat({"type": "image_url", "image_url": {"url": "http://h/x.png"}}))
    assert prompt.stand_in is None
    assert prompt.items[0].identifier.startswith("url:")
    assert prompt.num_media_tokens == 880


def test_what_cannot_be_rendered_has_stand_ins_and_says_why(settings):
    (prompt,) = read(settings, chat("x" * 400, chat_template="{{ messages }}"))
    assert prompt.stand_in == "template-in-request"
    assert (prompt.num_tokens, min(prompt.token_ids) >= FIRST_STAND_IN) == (108, True)
    (prompt,) = read(EmulatorSettings(model="m"), chat("x" * 400))
    assert prompt.stand_in == "no-renderer"


def test_a_text_is_as_long_as_its_tokens(settings):
    # A byte is a token here: the stand-ins of 4 bytes each would fit.
    with pytest.raises(Refusal, match="contains at least 4097 input tokens"):
        read(settings, chat("x" * 4096))
    # What could not fit by any tokenizer is not tokenised.
    with pytest.raises(Refusal, match="contains at least 4097 input tokens"):
        read(replace(settings, renderer="never asked"), chat("x" * (4096 * 64 + 1)))
    assert read(settings, chat("x" * 4000))[0].num_tokens == 4019


async def test_the_record_says_it(settings):
    async with Emulator(settings) as emulator:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        await ask(emulator, body)
        await ask(emulator, body | {"chat_template": "x"})
        assert [record.stand_in for record in emulator.records] == [None, "template-in-request"]
        assert [record.num_cached_tokens for record in emulator.records] == [0, 0]
        await ask(emulator, body)
        assert emulator.records[2].num_cached_tokens == 16


async def ask(emulator, body):
    async with aiohttp.ClientSession() as http, http.post(f"{emulator.url}/v1/chat/completions", json=body) as answer:
        assert answer.status == 200


def test_a_folder_that_does_not_tell(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        read_prompt_rules(tmp_path / "none")
    write_model(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["Nobody"]}')
    with pytest.raises(ConfigError, match="architectures: Nobody"):
        read_prompt_rules(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        read_prompt_rules(tmp_path)


def test_a_folder_with_a_broken_tokenizer_or_template(tmp_path):
    write_model(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(ConfigError, match="not Jinja"):
        read_prompt_rules(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        read_prompt_rules(tmp_path)

"""From what a dialect saw to the engine's token ids, by a tokenizer of single bytes."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from tessera.core.dialects.chat import ChatDialect
from tessera.core.dialects.completions import CompletionsDialect
from tessera.core.dialects.generate import GenerateDialect
from tessera.core.dialects.messages import MessagesDialect
from tessera.core.rendering.prompt import PromptTokens
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.tokenizer import MAX_COUNTED_CHARS
from tessera.core.types import Basis, ItemSpan, ModelProfile

from .conftest import PAD, ids_of, template

IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}


@pytest.fixture
def tokens(renderer, memo, body_of):
    def made(dialect=ChatDialect, items=(), renderer=renderer, wall_at=0.0, **body):
        draft = dialect().parse(body_of(body), ModelProfile())
        return renderer.tokens(draft, items, memo, wall_at)

    return made


@pytest.fixture
def item(build):
    def made(num_tokens, index=0, **fields):
        priced = build.item(num_tokens, index=index, num_wrapper_tokens=2)
        name = {"identifier": fields["uuid"]} if "uuid" in fields else {}
        return replace(priced, item=replace(priced.item, is_identity_exact=True, **name | fields))

    return made


def user(*parts):
    return [{"role": "user", "content": list(parts)}]


def test_a_conversation(tokens):
    found = tokens(messages=user("Hi é"))
    assert found == PromptTokens(token_ids=ids_of("<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n"))


def test_media_are_expanded(tokens, item):
    items = [item(3), item(2, 1)]
    found = tokens(items=items, messages=user(IMAGE, "a", IMAGE), add_generation_prompt=False)
    picture = "<|vision_start|>" + "<|image_pad|>" * 3 + "<|vision_end|>"
    other = "<|vision_start|>" + "<|image_pad|>" * 2 + "<|vision_end|>"
    assert found.token_ids == ids_of(f"<|im_start|>user\n{picture}a{other}<|im_end|>\n")
    assert found.spans == (ItemSpan(0, 7, 3), ItemSpan(1, 13, 2))
    assert found.items == tuple(items)


def test_markers_in_the_clients_text_are_markers(tokens):
    found = tokens(messages=user("a<|im_end|>b<|image_pad|>"), add_generation_prompt=False)
    assert found.token_ids == ids_of("<|im_start|>user\na<|im_end|>b<|image_pad|><|im_end|>\n")


def test_a_placeholder_in_the_clients_text_beside_a_picture(tokens, item):
    with pytest.raises(Unrendered) as caught:
        tokens(items=[item(2)], messages=user(IMAGE, "<|image_pad|>"))
    assert caught.value.reason is Reason.PLACEHOLDERS


def test_texts_are_tokenised_once(tokens, memo):
    first = tokens(messages=user("a long enough text"))
    assert (memo.num_hits, len(memo.known)) == (0, 1)
    assert tokens(messages=user("a long enough text")) == first
    assert memo.num_hits == 1
    tokens(messages=[*user("a long enough text"), {"role": "assistant", "content": "and its answer, which is new"}])
    assert (memo.num_hits, len(memo.known)) == (2, 2)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"chat_template": "{{ 1 }}"}, Reason.TEMPLATE_IN_REQUEST),
        ({"chat_template_kwargs": {"chat_template": "x"}}, Reason.OPTION),
        ({"chat_template_kwargs": {"max_length": 3}}, Reason.OPTION),
        ({"chat_template_kwargs": 7}, Reason.OPTION),
        ({"continue_final_message": True}, Reason.OPTION),
        ({"add_special_tokens": True}, Reason.OPTION),
        ({"truncate_prompt_tokens": 0}, Reason.OPTION),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, Reason.OPTION),
        ({"add_generation_prompt": 0}, Reason.OPTION),
        ({"add_generation_prompt": "false"}, Reason.OPTION),
        ({"continue_final_message": 1, "add_generation_prompt": False}, Reason.OPTION),
        ({"continue_final_message": "true", "add_generation_prompt": False}, Reason.OPTION),
        ({"add_special_tokens": "false"}, Reason.OPTION),
        ({"messages": []}, Reason.MESSAGE),
        ({"messages": "Hi"}, Reason.MESSAGE),
        ({"tools": []}, Reason.MESSAGE),
        ({"messages": user({"type": "hologram"})}, Reason.MESSAGE),
        ({"messages": user("x" * (MAX_COUNTED_CHARS + 1))}, Reason.TEXT),
        ({"messages": user("\ud800")}, Reason.TEXT),
    ],
)
def test_what_is_not_known_for_certain(tokens, body, reason):
    with pytest.raises(Unrendered) as caught:
        tokens(**{"messages": user("Hi")} | body)
    assert caught.value.reason is reason


def test_other_fields_change_nothing(tokens):
    plain = tokens(messages=user("Hi"))
    assert tokens(messages=user("Hi"), kv_transfer_params={"a": 1}, add_special_tokens=False, echo=True) == plain
    nothing = {"kv_transfer_params": {"prompt_token_ids": None}, "add_generation_prompt": None}
    assert tokens(messages=user("Hi"), **nothing, continue_final_message=None) == plain


def test_an_escaped_key_is_the_same_key(renderer, memo):
    body = b'{"messages": [{"role": "user", "content": "a"}], "kv_transfer_params": {"prompt_token\\u005fids": [5]}}'
    with pytest.raises(Unrendered) as caught:
        renderer.tokens(ChatDialect().parse(body, ModelProfile()), (), memo, 0.0)
    assert caught.value.reason is Reason.OPTION


def test_names_that_engines_pass_over_name_nothing_for_certain(tokens, item):
    for names, reason in (({"image": ["a"]}, Reason.ITEM_NAME), ({"image": [None]}, None), ({"video": ["a"]}, None)):
        with pytest.raises(Unrendered) if reason else nullcontext() as caught:
            tokens(items=[item(2)], messages=user(IMAGE), multi_modal_uuids=names)
        assert reason is None or caught.value.reason is reason


def test_arguments_of_the_template(tokens, renderer):
    source = "{{ a }}{{ b }}{{ enable_thinking }}{{ reasoning_effort }}{{ add_generation_prompt }}"
    changed = replace(renderer, template=template(source), template_kwargs={"a": 1, "b": 2})

    def text(**body):
        found = tokens(renderer=changed, messages=user("Hi"), **body)
        return bytes(found.token_ids).decode()

    assert text() == "12True"
    assert text(chat_template_kwargs={"a": 3, "b": None, "add_generation_prompt": False}) == "32True"
    assert text(chat_template_kwargs={"a": "auto"}) == "12True"
    assert text(reasoning_effort="none") == "12FalsenoneTrue"
    assert text(reasoning_effort="low", chat_template_kwargs={"enable_thinking": 0}) == "120lowTrue"


def test_tools_have_a_template_of_their_own(tokens, renderer):
    both = replace(renderer, template=template("plain"), tool_template=template("{{ tools[0].function.name }}"))
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert tokens(renderer=both, messages=user("Hi")).token_ids == ids_of("plain")
    assert tokens(renderer=both, messages=user("Hi"), tools=tools).token_ids == ids_of("f")


def test_without_a_template_only_texts_and_ids_are_known(tokens, renderer):
    bare = replace(renderer, template=None)
    with pytest.raises(Unrendered) as caught:
        tokens(renderer=bare, messages=user("Hi"))
    assert caught.value.reason is Reason.NO_TEMPLATE
    assert tokens(CompletionsDialect, renderer=bare, prompt="Hi").token_ids == (72, 105)


def test_the_content_format_may_be_told(tokens, renderer, item):
    told = replace(renderer, template=template("{{ messages[0].content }}"), wraps_parts=False)
    text = "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>\na"
    assert tokens(renderer=told, items=[item(2)], messages=user("a", IMAGE)).token_ids == ids_of(text)


def test_the_date_is_the_requests(tokens, renderer):
    dated = replace(renderer, template=template("{{ strftime_now('%Y') }}"))
    assert tokens(renderer=dated, messages=user("Hi"), wall_at=1e9).token_ids == ids_of("2001")


class TestCompletions:
    def test_a_text(self, tokens):
        assert tokens(CompletionsDialect, prompt="a<|im_end|>").token_ids == ids_of("a<|im_end|>")

    def test_ids(self, tokens):
        assert tokens(CompletionsDialect, prompt=[5, 6]).token_ids == (5, 6)
        assert tokens(CompletionsDialect, prompt=[[5, 6]]).token_ids == (5, 6)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"prompt": ["a", "b"]}, Reason.SEVERAL_PROMPTS),
            ({"prompt": None}, Reason.DIALECT),
            ({"prompt": "a", "truncate_prompt_tokens": 1}, Reason.OPTION),
            ({"prompt": "a", "prompt_embeds": "x"}, Reason.OPTION),
            ({"prompt": "a", "add_special_tokens": 0}, Reason.OPTION),
            ({"prompt": "a", "add_special_tokens": "false"}, Reason.OPTION),
            ({"prompt": [-1]}, Reason.TOKEN_ID),
            ({"prompt": [1 << 31]}, Reason.TOKEN_ID),
        ],
    )
    def test_what_is_not_known(self, tokens, body, reason):
        with pytest.raises(Unrendered) as caught:
            tokens(CompletionsDialect, **body)
        assert caught.value.reason is reason


class TestGenerate:
    features = {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 1, "length": 2}]}}

    def test_items_lie_where_the_client_says(self, tokens, item):
        declared = replace(item(2, num_tokens_declared=2), size_basis=Basis.DECLARED)
        found = tokens(GenerateDialect, items=[declared], token_ids=[1, PAD, PAD, 2], features=self.features)
        assert (found.token_ids, found.spans) == ((1, PAD, PAD, 2), (ItemSpan(0, 1, 2),))

    @pytest.mark.parametrize(
        "body",
        [
            {"content_parts": [IMAGE]},
            {"features": 7},
            {"features": {"mm_hashes": {"image": ["a"]}}},
            {
                "features": features | {"mm_placeholders": {"image": [{"offset": 1, "length": 3}]}},
                "token_ids": [1, 2, 3],
            },
            {
                "features": {
                    "mm_hashes": {"image": ["a", "b"]},
                    "mm_placeholders": {"image": [{"offset": 0, "length": 2}, {"offset": 1, "length": 1}]},
                }
            },
            {"features": features | {"mm_hashes": {"image": ["\ud800"]}}},
        ],
    )
    def test_media_without_a_place(self, tokens, body):
        with pytest.raises(Unrendered) as caught:
            tokens(GenerateDialect, **{"token_ids": [1, 2]} | body)
        assert caught.value.reason is Reason.PLACEHOLDERS


def test_other_shapes_are_not_rendered(tokens):
    with pytest.raises(Unrendered) as caught:
        tokens(MessagesDialect, messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.reason is Reason.DIALECT


class TestUuids:
    """Media that only their uuid names are as large as they were when they came."""

    @staticmethod
    def alone(priced):
        return replace(priced, num_tokens=99, size_basis=Basis.DEFAULT, item=replace(priced.item, has_content=False))

    def test_a_uuid_that_was_seen(self, tokens, item):
        whole = item(3, uuid="u")
        first = tokens(items=[whole], messages=user(IMAGE))
        again = tokens(items=[self.alone(whole)], messages=user({"type": "image_url", "image_url": None, "uuid": "u"}))
        assert (again.token_ids, again.spans) == (first.token_ids, first.spans)
        (priced,) = again.items
        assert (priced.num_tokens, priced.num_embeds, priced.num_wrapper_tokens) == (3, 3, 2)
        assert (priced.rule_basis, priced.size_basis, priced.reason) == (Basis.EXACT, Basis.LEARNED, "learned-uuid")

    def test_a_uuid_that_was_not(self, tokens, item):
        tokens(items=[item(3, uuid="u")], messages=user(IMAGE))
        with pytest.raises(Unrendered) as caught:
            tokens(items=[self.alone(item(3, uuid="v"))], messages=user(IMAGE))
        assert caught.value.reason is Reason.ITEM_SIZE

    def test_what_was_not_exact_is_not_remembered(self, tokens, item):
        guessed = replace(item(3, uuid="u"), size_basis=Basis.DECLARED)
        with pytest.raises(Unrendered):
            tokens(items=[guessed], messages=user(IMAGE))
        with pytest.raises(Unrendered):
            tokens(items=[self.alone(item(3, uuid="u"))], messages=user(IMAGE))

    def test_media_of_several_sizes_under_one_uuid_have_none(self, tokens, item):
        def use(*items):
            tokens(items=items, messages=user(*[IMAGE] * len(items)))

        use(item(3, uuid="u"), item(3, 1, uuid="u"))
        for items in (
            [item(4, uuid="u")],
            [item(3, uuid="u")],
            [self.alone(item(3, uuid="u"))],
            [item(3, uuid="v"), item(4, 1, uuid="v")],
        ):
            with pytest.raises(Unrendered) as caught:
                use(*items)
            assert caught.value.reason is Reason.ITEM_SIZE
        use(item(4, uuid="w"))

    def test_a_prompt_that_cannot_be_told_tells_sizes(self, tokens, item):
        with pytest.raises(Unrendered):
            tokens(items=[item(3, uuid="u")], messages=user(IMAGE), truncate_prompt_tokens=1)
        assert tokens(items=[self.alone(item(3, uuid="u"))], messages=user(IMAGE)).spans[0].num_tokens == 3

    def test_what_was_exact_and_is_no_longer(self, tokens, item):
        tokens(items=[item(3, uuid="u")], messages=user(IMAGE))
        for unsure in (replace(item(3, uuid="u"), size_basis=Basis.DECLARED), self.alone(item(3, uuid="u"))):
            with pytest.raises(Unrendered):
                tokens(items=[unsure], messages=user(IMAGE))

    def test_a_uuid_with_kwargs_is_a_name_of_its_own(self, tokens, item):
        """The engine hashes the kwargs with it, and they may change the size."""
        tokens(items=[item(3, uuid="u", identifier="u")], messages=user(IMAGE))
        tokens(items=[item(2, uuid="u", identifier="hash")], messages=user(IMAGE))
        for identifier, size in (("u", 3), ("hash", 2)):
            alone = self.alone(item(9, uuid="u", identifier=identifier))
            assert tokens(items=[alone], messages=user(IMAGE)).spans[0].num_tokens == size

    def test_no_text_passes_for_a_size(self, tokens, item, memo):
        tokens(items=[item(3, uuid="u")], messages=user(IMAGE))
        (known,) = [ids for ids in memo.known.values() if ids == (3, 3, 2)]
        assert len(known) == 3

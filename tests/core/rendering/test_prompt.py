"""From what a dialect saw to the engine's token ids, by a tokenizer of single bytes."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tessera.core.dialects.chat import ChatDialect
from tessera.core.dialects.completions import CompletionsDialect
from tessera.core.dialects.generate import GenerateDialect
from tessera.core.dialects.messages import MessagesDialect
from tessera.core.dialects.responses import ResponsesDialect
from tessera.core.dialects.transcriptions import TranscriptionsDialect
from tessera.core.rendering import prompt
from tessera.core.rendering.prompt import MAX_PROMPT_CHARS, PromptTokens
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.tokenizer import TextTokenizer
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
    memo.known = dict.fromkeys(memo.known, (7,))
    assert tokens(messages=user("a long enough text")).token_ids[1] == 7


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
        ({"messages": user("x" * (MAX_PROMPT_CHARS // 2), "x" * (MAX_PROMPT_CHARS // 2))}, Reason.TEXT),
        ({"tools": [{"function": {"name": "f", "description": "x" * MAX_PROMPT_CHARS}}]}, Reason.TEXT),
        ({"messages": user("\ud800")}, Reason.TEXT),
    ],
)
def test_what_is_not_known_for_certain(tokens, body, reason):
    with pytest.raises(Unrendered) as caught:
        tokens(**{"messages": user("Hi")} | body)
    assert caught.value.reason is reason


@pytest.mark.parametrize(("more", "is_told"), [(0, True), (1, False)])
class TestLongest:
    """A prompt may have so many tokens, media expanded, and so many characters once it is rendered."""

    @staticmethod
    def is_told(tokens, *args, **fields):
        try:
            return tokens(*args, **fields) is not None
        except Unrendered as unrendered:
            return unrendered.reason is not Reason.TEXT

    def test_tokens(self, tokens, item, monkeypatch, more, is_told):
        monkeypatch.setattr(prompt, "MAX_PROMPT_TOKENS", 40)
        assert self.is_told(tokens, CompletionsDialect, prompt=[1] * (40 + more)) is is_told
        assert self.is_told(tokens, CompletionsDialect, prompt="é" * 20 + "a" * more) is is_told
        # Six for the user, two around the picture, two for the end, eleven for the assistant.
        assert self.is_told(tokens, items=[item(19 + more)], messages=user(IMAGE)) is is_told

    def test_characters(self, tokens, monkeypatch, more, is_told):
        monkeypatch.setattr(prompt, "MAX_PROMPT_CHARS", 60)
        # "<|im_start|>user\n" and "<|im_end|>\n".
        fields = {"messages": user("a" * 16, "b" * (16 + more)), "add_generation_prompt": False}
        assert self.is_told(tokens, **fields) is is_told


def test_what_is_too_long_is_seen_before_it_is_rendered(tokens, renderer, item, monkeypatch):
    unable = replace(renderer, template=None)
    for items, body in (([item(prompt.MAX_PROMPT_TOKENS + 1)], user(IMAGE)), ([], user("x" * MAX_PROMPT_CHARS + "x"))):
        with pytest.raises(Unrendered) as caught:
            tokens(renderer=unable, items=items, messages=body)
        assert caught.value.reason is Reason.TEXT


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
        assert tokens(CompletionsDialect, prompt=[0, (1 << 31) - 1]).token_ids == (0, (1 << 31) - 1)

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

    def test_what_the_client_says_goes_before_what_came_under_the_name(self, tokens, item):
        tokens(items=[item(3, uuid="a")], messages=user(IMAGE))
        declared = replace(item(2, uuid="a", num_tokens_declared=2, has_content=False), size_basis=Basis.DECLARED)
        found = tokens(GenerateDialect, items=[declared], token_ids=[1, PAD, PAD, 2], features=self.features)
        assert found.items == (declared,)

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


class TestMessages:
    """Anthropic's conversations, by the same template."""

    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}

    def test_a_conversation(self, tokens, renderer, item):
        # The template of the others prints no content that is a string, as a tool's is.
        source = (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for p in m.content %}{{ p.text or '<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}"
            "{% endif %}<|im_end|>\n{% endfor %}"
        )
        strings = replace(renderer, template=template(source), tool_template=None)
        result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a"}, self.picture]}
        content = [{"type": "text", "text": "b"}, self.picture, result]
        found = tokens(MessagesDialect, items=[item(2), item(3, 1)], renderer=strings, messages=user(*content))
        shown = "<|vision_start|>" + "<|image_pad|>" * 2 + "<|vision_end|>"
        other = "<|vision_start|>" + "<|image_pad|>" * 3 + "<|vision_end|>"
        assert found.token_ids == ids_of(
            f"<|im_start|>tool\na<|im_end|>\n<|im_start|>user\n{shown}<|im_end|>\n"
            f"<|im_start|>user\nb{other}<|im_end|>\n"
        )
        assert [span.index for span in found.spans] == [0, 1]

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"messages": user({"type": "hologram"})}, Reason.MESSAGE),
            ({"tools": [{"name": "f"}]}, Reason.MESSAGE),
            ({"output_config": {"effort": "odd"}}, Reason.OPTION),
            ({"chat_template_kwargs": {"documents": []}}, Reason.OPTION),
            ({"kv_transfer_params": {"prompt_token_ids": [1]}}, Reason.OPTION),
        ],
    )
    def test_what_is_not_known_for_certain(self, tokens, body, reason):
        with pytest.raises(Unrendered) as caught:
            tokens(MessagesDialect, **{"messages": user({"type": "text", "text": "Hi"})} | body)
        assert caught.value.reason is reason

    def test_a_picture_that_the_engine_leaves_out(self, tokens, item):
        document = {"type": "document", "source": {"type": "content", "content": [self.picture]}}
        messages = user({"type": "tool_result", "tool_use_id": "t", "content": [document]}, self.picture)
        with pytest.raises(Unrendered) as caught:
            tokens(MessagesDialect, items=[item(2), item(3, 1)], messages=messages)
        assert caught.value.reason is Reason.PLACEHOLDERS

    LATER = {
        "system": "a",
        "messages": [{"role": "user", "content": "b"}, {"role": "system", "content": "c"}],
    }
    TAKES = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
    REFUSES = TAKES + "{{ raise_exception('x') if messages[2:] and messages[2].role == 'system' }}"

    @pytest.mark.parametrize(
        ("plain", "with_tools", "expected"),
        [
            (TAKES, TAKES, "sa" + "ub" + "sc"),
            (REFUSES, REFUSES, "sac" + "ub"),
            (TAKES, REFUSES, "sac" + "ub"),
            (TAKES, None, "sac" + "ub"),
        ],
    )
    def test_later_system_text(self, tokens, renderer, plain, with_tools, expected):
        changed = replace(
            renderer,
            template=template(plain),
            tool_template=template(with_tools) if with_tools else None,
            wraps_parts=False,
        )
        assert tokens(MessagesDialect, renderer=changed, **self.LATER).token_ids == ids_of(expected)

    def test_no_system_text_to_put_in_front(self, tokens, renderer):
        changed = replace(renderer, template=template(self.REFUSES), tool_template=None, wraps_parts=False)
        messages = [{"role": "user", "content": "b"}]
        assert tokens(MessagesDialect, renderer=changed, messages=messages).token_ids == ids_of("ub")

    def test_a_chats_later_system_text_stays(self, tokens, renderer):
        changed = replace(renderer, template=template(self.TAKES), tool_template=None, wraps_parts=False)
        messages = [{"role": "user", "content": "b"}, {"role": "system", "content": "c"}]
        assert tokens(renderer=changed, messages=messages).token_ids == ids_of("ubsc")

    @pytest.mark.parametrize(
        ("source", "effort"),
        [
            # Nothing speaks of thinking: "none" makes what "low" makes.
            ("{{ 'x' }}", "low"),
            ("{{ enable_thinking }}", "none"),
            ("{{ reasoning_effort }}", "none"),
            ("{{ 'max' if reasoning_effort not in ['low', 'high'] else reasoning_effort }}", "low"),
            ("{{ raise_exception('x') if reasoning_effort == 'none' }}", "low"),
            ("{{ raise_exception('x') if reasoning_effort != 'none' and messages[0].content == 'Hi' }}", "none"),
        ],
    )
    def test_no_thinking(self, tokens, renderer, source, effort):
        shown = source + "{% if messages[0].content != 'Hi' %}={{ reasoning_effort }}{{ enable_thinking }}{% endif %}"
        changed = replace(renderer, template=template(shown), tool_template=None, wraps_parts=False)
        messages = [{"role": "user", "content": "Hello"}]

        def end(**body):
            found = tokens(MessagesDialect, renderer=changed, messages=messages, **body)
            return bytes(found.token_ids).decode().partition("=")[2]

        thinks = effort != "none"
        assert end(thinking={"type": "disabled"}) == f"{effort}{thinks}"
        assert end(thinking={"type": "disabled"}, output_config={"effort": "max"}) == f"{effort}{thinks}"
        assert end(thinking={"type": "disabled"}, chat_template_kwargs={"enable_thinking": 7}) == f"{effort}7"
        assert end(thinking={"type": "adaptive"}) == ""
        assert end(thinking={"type": "adaptive"}, output_config={"effort": "high"}) == "highTrue"


class TestResponses:
    """OpenAI's items, by the same template."""

    def test_a_conversation(self, tokens, item):
        found = tokens(
            ResponsesDialect,
            items=[item(2)],
            instructions="Be brief.",
            input=user(
                {"type": "input_image", "image_url": "data:,x"}, {"type": "input_text", "text": "What is this?"}
            ),
        )
        assert found.token_ids == ids_of(
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
            "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>What is this?<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_an_answer_that_was_begun(self, tokens):
        begun = {"role": "assistant", "content": "It is", "status": "incomplete"}
        assert tokens(ResponsesDialect, input=[begun]).token_ids == ids_of("<|im_start|>assistant\nIt is")

    def test_fields_of_calls_keep_their_order(self, tokens, renderer):
        shown = template("{{ messages[0].tool_calls | tojson }}")
        changed = replace(renderer, template=shown, tool_template=None)
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        found = tokens(ResponsesDialect, renderer=changed, input=[call])
        expected = '[{"id": "c", "function": {"name": "f", "arguments": {}}, "type": "function"}]'
        assert bytes(found.token_ids).decode() == expected

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"input": [{"type": "item_reference", "id": "x"}]}, Reason.MESSAGE),
            ({"tools": [{"type": "namespace"}]}, Reason.MESSAGE),
            ({"reasoning": {"effort": "odd"}}, Reason.OPTION),
            ({"previous_response_id": "resp_1"}, Reason.OPTION),
            ({"truncation": "auto"}, Reason.OPTION),
        ],
    )
    def test_what_is_not_known_for_certain(self, tokens, body, reason):
        with pytest.raises(Unrendered) as caught:
            tokens(ResponsesDialect, **{"input": "Hi"} | body)
        assert caught.value.reason is reason

    def test_special_tokens_stand_around_the_text(self, tokens, renderer, model_folder):
        content = json.loads((model_folder / "tokenizer.json").read_text())
        marker = {"id": "<|endoftext|>", "ids": [PAD - 1], "tokens": ["<|endoftext|>"]}
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": marker},
        }
        around = replace(renderer, tokenizer=TextTokenizer(json.dumps(content).encode()))
        (first, *rest) = tokens(ResponsesDialect, renderer=around, input="Hi").token_ids
        assert (first, tuple(rest)) == (PAD - 1, tokens(messages=user("Hi")).token_ids)
        assert tokens(renderer=around, messages=user("Hi")).token_ids == tuple(rest)


def test_other_shapes_are_not_rendered(renderer, memo):
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n'
    draft = TranscriptionsDialect().parse(form, ModelProfile(), {"content-type": "multipart/form-data; boundary=x"})
    with pytest.raises(Unrendered) as caught:
        renderer.tokens(draft, [], memo, 0.0)
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

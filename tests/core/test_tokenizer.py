"""Texts are cut only where their tokens do not depend on what stands around them."""

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from tessera.core.tokenizer import MAX_COUNTED_CHARS, TextTokenizer


def words(*added, pre_tokenizer=None, post_processor=None):
    """A tokenizer whose tokens are words, with these added tokens."""
    vocab = {word: number for number, word in enumerate(["?", "a", "b", "▁a", "▁b", "c"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Whitespace()
    if post_processor is not None:
        tokenizer.post_processor = post_processor
    tokenizer.add_special_tokens([each if isinstance(each, AddedToken) else plain(each) for each in added])
    return TextTokenizer(tokenizer.to_str().encode())


def plain(content, **flags):
    return AddedToken(content, **{"normalized": False, "special": True} | flags)


def test_ids_of_a_text():
    tokenizer = words("<x>")
    assert tokenizer.encode("a b<x>a") == [1, 2, 6, 1]
    assert (tokenizer.count("a b<x>a"), tokenizer.count("")) == (4, 0)
    assert (tokenizer.id_of("<x>"), tokenizer.id_of("<y>")) == (6, None)


def test_special_tokens_around_a_prompt():
    around = processors.TemplateProcessing(single="<x> $A", special_tokens=[("<x>", 6)])
    adding, plain_one = words("<x>", post_processor=around), words("<x>")
    assert (adding.adds_special_tokens, plain_one.adds_special_tokens) == (True, False)
    assert (adding.encode("a"), adding.encode("a", add_special_tokens=True)) == ([1], [6, 1])
    assert plain_one.encode("a", add_special_tokens=True) == [1]


def test_a_text_is_cut_at_added_tokens():
    tokenizer = words("<x>", "<x>y", "<")
    assert list(tokenizer.pieces("a <x>b<x>y< c")) == ["a ", 6, "b", 7, 8, " c"]
    assert list(tokenizer.pieces("")) == []
    assert list(tokenizer.pieces("<x>")) == [6]


def test_pieces_have_the_tokens_of_the_whole():
    tokenizer = words("<x>", "<x>y", "<")
    text = "a<x> b <x>y a<<x>b"
    pieced = [
        each
        for piece in tokenizer.pieces(text)
        for each in ([piece] if isinstance(piece, int) else tokenizer.encode(piece))
    ]
    assert pieced == tokenizer.encode(text)


@pytest.mark.parametrize(
    "tokenizer",
    [
        words(),
        words(plain("<x>", lstrip=True)),
        words(plain("<x>", rstrip=True)),
        words(plain("<x>", single_word=True)),
        words(plain("<x>", normalized=True)),
        words("<x>", pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first")),
    ],
    ids=["none", "lstrip", "rstrip", "single word", "normalized", "first piece"],
)
def test_a_text_that_must_not_be_cut_is_left_whole(tokenizer):
    assert list(tokenizer.pieces("a<x>b")) == ["a<x>b"]


@pytest.mark.parametrize("window", [1, 2, 3, 5, 100])
def test_pieces_are_the_same_whatever_is_searched_at_once(monkeypatch, window):
    monkeypatch.setattr("tessera.core.tokenizer.WINDOW_CHARS", window)
    tokenizer = words("<x>", "<x>yz", "<", "ab", "abc", "\n", "\n\n")
    assert list(tokenizer.pieces("abcab<<x>yz.<x>y\n\n\nq")) == [*(10, 9, 8, 7, ".", 6, "y", 12, 11, "q")]


def test_many_added_tokens_cost_no_more_than_few():
    """Were each tried at every place, this would take two minutes, and no other thread would run meanwhile."""
    tokenizer = words(*(f"<unused{number}>" for number in range(6000)))
    assert list(tokenizer.pieces("<" * (1 << 20) + "unused5999>")) == ["<" * ((1 << 20) - 1), 6005]


def test_a_fault_of_the_library_is_a_text_that_it_does_not_take():
    tokenizer = words(plain("\n\n", single_word=True, normalized=True), plain("ab", single_word=True))
    assert tokenizer.encode("a b") == [1, 2]
    broken = Tokenizer.from_str(tokenizer._tokenizer.to_str())
    broken.normalizer = normalizers.Strip()
    assert TextTokenizer(broken.to_str().encode()).encode(">.|b.<|a|>a1<x>x>\u2581\u0301\u65e5") is None


def test_what_no_tokenizer_takes():
    tokenizer = words("<x>")
    assert tokenizer.encode("\ud800") is None
    assert tokenizer.encode("a" * (MAX_COUNTED_CHARS + 1)) is None
    assert tokenizer.count("a" * (MAX_COUNTED_CHARS + 1)) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"no json"])
def test_what_is_no_tokenizer(content):
    with pytest.raises(ValueError, match=r"no tokenizer\.json"):
        TextTokenizer(content)

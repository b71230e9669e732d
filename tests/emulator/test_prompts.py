"""Do prompts share the blocks that they have in common, and no others?"""

import pytest

from tessera.core.draft import DraftMedia, DraftText, DraftTokens
from tessera.core.parts import Modality
from tessera.emulator.pictures import PromptItem
from tessera.emulator.prompts import FIRST_STAND_IN, EnginePrompt, num_text_tokens, stand_ins
from tessera.engine.requests import MediaSegment, TextSegment

PICTURE = DraftMedia(modality=Modality.IMAGE, url="http://x")


def item(identifier="a", num_tokens=10, num_wrapper_tokens=2):
    return PromptItem(
        identifier=identifier,
        width=64,
        height=32,
        num_tokens=num_tokens,
        num_embeds=num_tokens - 1,
        num_wrapper_tokens=num_wrapper_tokens,
    )


def prompt(parts, items=(), num_messages=1, **rest):
    ids, offsets = stand_ins(parts, items, num_messages)
    return EnginePrompt(token_ids=ids, items=tuple(items), offsets=offsets, **rest)


def user(text):
    return DraftText(role="user", text=text)


def num_shared(one, two, block_size=4):
    """Tokens of the first segments that are the same."""
    contents = zip(one.segments(block_size), two.segments(block_size), strict=False)
    total = 0
    for a, b in contents:
        if a != b:
            break
        total += a.num_tokens
    return total


def test_a_message_is_its_text_and_five_markers():
    asked = prompt([user("12345678")])
    # Start, role, newline; 2 of text; end, newline; start, assistant, newline.
    assert asked.num_tokens == 3 + 2 + 2 + 3
    assert min(asked.token_ids) >= FIRST_STAND_IN
    assert prompt([user("123456789")]).num_tokens == 11
    assert prompt([DraftText(text="12345678")], num_messages=0).num_tokens == 2
    assert num_text_tokens([user("123456789"), DraftTokens(token_ids=[1, 2]), PICTURE]) == 5


def test_messages_without_a_role_weigh_as_much():
    assert prompt([DraftText(text="1234")], num_messages=2).num_tokens == 2 * 5 + 3 + 1
    assert prompt([], num_messages=1).num_tokens == 8


def test_pieces_of_unlike_length_are_unlike():
    one, two = prompt([user("a")]), prompt([user("a\0")])
    assert one.num_tokens == two.num_tokens
    assert num_shared(one, two, block_size=1) == 3


def test_a_picture_lies_between_its_markers():
    asked = prompt([user("1234"), PICTURE, DraftText(text="5678")], [item(num_wrapper_tokens=3)])
    # 3 of the head, 1 of text, 2 of 3 markers.
    assert asked.offsets == (6,)
    assert asked.num_tokens == 6 + 10 + 1 + 1 + 2 + 3
    assert len(set(asked.token_ids[6:16])) == 1
    assert asked.num_media_tokens == 10


def test_text_is_cut_where_blocks_end_and_pictures_are_whole():
    asked = prompt([user("1234"), PICTURE, DraftText(text="5678")], [item()])
    assert [segment.num_tokens for segment in asked.segments(4)] == [4, 1, 10, 1, 4, 2]
    media = asked.segments(4)[2]
    assert media == MediaSegment("a", 10, 9, 64, 32)
    assert [segment.num_tokens for segment in prompt([user("x" * 40)]).segments(16)] == [16, 2]


def test_pictures_beside_each_other():
    asked = prompt([user(""), PICTURE, PICTURE], [item("a", 4, 0), item("b", 5, 0)])
    kinds = [(type(segment), segment.num_tokens) for segment in asked.segments(4)]
    assert kinds == [(TextSegment, 3), (MediaSegment, 4), (MediaSegment, 5), (TextSegment, 4), (TextSegment, 1)]


def test_a_further_turn_shares_all_but_what_the_answer_replaces():
    first = [user("x" * 32)]
    turn = [*first, DraftText(role="assistant", text="y" * 8), user("z")]
    one, two = prompt(first), prompt(turn, num_messages=3)
    # Head, text, end; then start and a role that differ, in a block that is not shared.
    assert one.num_tokens == 3 + 8 + 2 + 3
    assert num_shared(one, two, block_size=1) == 3 + 8 + 2 + 1 + 0
    assert num_shared(one, two) == 12


def test_other_roles_other_pictures_and_other_salts_share_nothing():
    text = "x" * 40
    assert num_shared(prompt([user(text)]), prompt([DraftText(role="system", text=text)])) == 0
    picture = [user(text), PICTURE]
    assert num_shared(prompt(picture, [item("a")]), prompt(picture, [item("b")])) == 12 + 2
    salted = [prompt([user(text)], cache_salt=salt) for salt in ("s", "s", "t", None)]
    assert num_shared(salted[0], salted[1]) == salted[0].num_tokens
    assert num_shared(salted[0], salted[2]) == num_shared(salted[0], salted[3]) == 0


@pytest.mark.parametrize("length", [1, 15, 16, 17])
def test_ids_of_the_client_stand_as_they_are(length):
    asked = prompt([DraftTokens(token_ids=list(range(length)))], num_messages=0)
    assert list(asked.token_ids) == list(range(length))
    assert [segment.num_tokens for segment in asked.segments(16)] == [length] if length <= 16 else [16, 1]

"""Every placeholder becomes its item's tokens, in turn; what is not known for certain is not expanded."""

from dataclasses import replace

import pytest

from tessera.core.parts import Modality
from tessera.core.rendering.placeholders import check_exact, expand
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.types import Basis, ItemSpan

IMG, VID = 100, 200
LAYOUTS = {Modality.IMAGE: IMG, Modality.VIDEO: VID}


@pytest.fixture
def item(build):
    def made(num_tokens, index=0, modality=Modality.IMAGE, **fields):
        priced = build.item(num_tokens, index=index)
        return replace(priced, item=replace(priced.item, modality=modality, is_identity_exact=True, **fields))

    return made


def test_each_placeholder_is_repeated(item):
    ids, spans = expand([1, IMG, 2, IMG, IMG, 3], [item(3, 0), item(1, 1), item(2, 2)], LAYOUTS)
    assert ids == (1, IMG, IMG, IMG, 2, IMG, IMG, IMG, 3)
    assert spans == (ItemSpan(0, 1, 3), ItemSpan(1, 5, 1), ItemSpan(2, 6, 2))


def test_each_modality_has_its_own_turns(item):
    items = [item(2, 0), item(3, 1, Modality.VIDEO), item(1, 2)]
    ids, spans = expand([VID, IMG, IMG], items, LAYOUTS)
    assert ids == (VID, VID, VID, IMG, IMG, IMG)
    assert spans == (ItemSpan(1, 0, 3), ItemSpan(0, 3, 2), ItemSpan(2, 5, 1))


def test_without_items_a_placeholder_is_a_token():
    assert expand([1, IMG, VID], [], LAYOUTS) == ((1, IMG, VID), ())


@pytest.mark.parametrize("ids", [[], [IMG, IMG], [IMG, VID]])
def test_a_placeholder_too_many_or_too_few(item, ids):
    with pytest.raises(Unrendered) as caught:
        expand(ids, [item(2)], LAYOUTS)
    assert caught.value.reason is Reason.PLACEHOLDERS


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"size_basis": Basis.LEARNED}, None),
        ({"size_basis": Basis.DECLARED}, Reason.ITEM_SIZE),
        ({"size_basis": Basis.DEFAULT}, Reason.ITEM_SIZE),
        ({"rule_basis": Basis.LEARNED}, Reason.ITEM_RULE),
        ({"rule_basis": Basis.DEFAULT}, Reason.ITEM_RULE),
    ],
)
def test_only_what_is_known_for_certain(item, change, reason):
    items = [item(2, 0), replace(item(2, 1), **change)]
    if reason is None:
        check_exact(items, LAYOUTS)
        return
    with pytest.raises(Unrendered) as caught:
        check_exact(items, LAYOUTS)
    assert caught.value.reason is reason


def test_a_name_that_is_only_ours(item):
    with pytest.raises(Unrendered) as caught:
        check_exact([replace(item(2), item=replace(item(2).item, is_identity_exact=False))], LAYOUTS)
    assert caught.value.reason is Reason.ITEM_NAME


def test_a_modality_whose_layout_is_not_known(item):
    with pytest.raises(Unrendered) as caught:
        check_exact([item(2, modality=Modality.AUDIO)], LAYOUTS)
    assert caught.value.reason is Reason.ITEM_LAYOUT


def test_what_stands_in_the_clients_ids_is_known(item):
    declared = replace(item(2, modality=Modality.AUDIO, num_tokens_declared=2), size_basis=Basis.DECLARED)
    check_exact([declared], {})

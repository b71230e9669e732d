"""Where in a prompt do the media stand, and how many tokens does each take there?"""

from collections.abc import Mapping, Sequence

from tessera.core.parts import Modality
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.types import Basis, ItemSpan, PricedItem


def check_exact(items: Sequence[PricedItem], layouts: Mapping[Modality, int]) -> None:
    """Whether every item's tokens and name are known for certain.

    ``layouts`` has the placeholder's token id of the modalities whose items are that id
    repeated.

    Raises:
        Unrendered: says which of them is not known.
    """
    for priced in items:
        if not priced.item.is_identity_exact:
            raise Unrendered(Reason.ITEM_NAME)
        if priced.item.num_tokens_declared is not None:
            continue
        if priced.rule_basis is not Basis.EXACT:
            raise Unrendered(Reason.ITEM_RULE)
        if priced.size_basis > Basis.LEARNED:
            raise Unrendered(Reason.ITEM_SIZE)
        if priced.item.modality not in layouts:
            raise Unrendered(Reason.ITEM_LAYOUT)


def expand(
    token_ids: Sequence[int], items: Sequence[PricedItem], layouts: Mapping[Modality, int]
) -> tuple[tuple[int, ...], tuple[ItemSpan, ...]]:
    """The prompt with each placeholder repeated as often as its item has tokens, and where the items lie.

    Items take the placeholders of their modality in turn.

    Raises:
        Unrendered: there are not as many placeholders as items: the client's text holds one, for example.
    """
    if not items:
        return tuple(token_ids), ()
    modality_of = {token_id: modality for modality, token_id in layouts.items()}
    found = [(at, modality_of[token_id]) for at, token_id in enumerate(token_ids) if token_id in modality_of]
    waiting = {modality: [each for each in items if each.item.modality is modality] for modality in layouts}
    if any(sum(each is modality for _, each in found) != len(waiting[modality]) for modality in layouts):
        raise Unrendered(Reason.PLACEHOLDERS)
    turns = {modality: iter(each) for modality, each in waiting.items()}
    expanded: list[int] = []
    spans: list[ItemSpan] = []
    done = 0
    for at, modality in found:
        priced = next(turns[modality])
        expanded += token_ids[done:at]
        spans.append(ItemSpan(priced.index, len(expanded), priced.num_tokens))
        expanded += [token_ids[at]] * priced.num_tokens
        done = at + 1
    expanded += token_ids[done:]
    return tuple(expanded), tuple(spans)

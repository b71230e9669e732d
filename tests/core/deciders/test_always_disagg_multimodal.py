from tessera.core.deciders.always_disagg_multimodal import AlwaysDisaggMultimodalDecider


def test_media_and_nothing_else_is_encoded_apart(build):
    decider = AlwaysDisaggMultimodalDecider()
    stage = build.stage([build.candidate()])
    assert decider.wants(build.priced(10, [build.item()]), stage)
    assert not decider.wants(build.priced(100_000), stage)


def test_each_distinct_item_whatever_is_cached(build):
    items = [build.item(identifier=name, index=index) for index, name in enumerate("aba")]
    request = build.priced(10, items)
    chosen = AlwaysDisaggMultimodalDecider().items(request, build.stage([build.candidate()]))
    assert [each.index for each in chosen] == [0, 1]

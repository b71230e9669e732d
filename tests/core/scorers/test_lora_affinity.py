from tessera.core.scorers.lora_affinity import LoraAffinityScorer


def test_running_then_a_free_place_then_waiting(build):
    candidates = build.loads(
        running_loras=[("x", "mine"), ("x",), ("x", "y"), ("x", "y"), ()],
        waiting_loras=[("y",), (), ("mine",), (), ()],
        max_loras=[2, 2, 2, 2, None],
    )
    scorer = LoraAffinityScorer()
    assert scorer.score(build.priced(model="mine"), candidates) == [1.0, 0.8, 0.6, 0.0, 0.0]
    assert scorer.score(build.priced(model="base", lora="mine"), candidates) == [1.0, 0.8, 0.6, 0.0, 0.0]
    assert scorer.score(build.priced(model="base"), candidates) == [0.0, 0.8, 0.0, 0.0, 0.0]


def test_a_free_place_counts_the_waiting_too(build):
    candidates = build.loads(running_loras=[("x",), ("x",)], waiting_loras=[("y",), ("y",)], max_loras=[2, 3])
    assert LoraAffinityScorer().score(build.priced(model="mine"), candidates) == [0.0, 0.8]

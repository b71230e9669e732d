import pytest

from tessera.sim.kernel import Kernel


def test_soonest_first_and_of_one_instant_in_order_of_asking():
    kernel, seen = Kernel(), []
    for when, name in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        kernel.at(when, lambda name=name: seen.append((kernel.now, name)))
    kernel.run()
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]


def test_an_action_may_ask_for_others_at_once_or_later():
    kernel, seen = Kernel(), []

    def first():
        kernel.at(kernel.now, lambda: seen.append(("now", kernel.now)))
        kernel.at(5.0, lambda: seen.append(("later", kernel.now)))

    kernel.at(3.0, first)
    kernel.run()
    assert seen == [("now", 3.0), ("later", 5.0)]


def test_the_past_cannot_be_asked_for():
    kernel = Kernel()
    kernel.at(1.0, lambda: kernel.at(0.5, lambda: None))
    with pytest.raises(AssertionError, match=r"0\.5 s is asked for at 1\.0 s"):
        kernel.run()


def test_nothing_happens_after_it_was_stopped():
    kernel, seen = Kernel(), []
    kernel.at(1.0, lambda: seen.append(kernel.now))
    kernel.at(2.0, kernel.stop)
    kernel.at(3.0, lambda: seen.append(kernel.now))
    kernel.run()
    assert (seen, kernel.now) == ([1.0], 2.0)

"""When leases end."""

from math import inf

from tessera.engine.leases import Leases


def test_the_soonest_ends_first_and_a_renewed_one_ends_once() -> None:
    leases = Leases()
    assert leases.next_at == inf
    leases.add("a", 5.0)
    leases.add("b", 3.0)
    leases.add("a", 2.0)
    leases.add("a", 7.0)
    assert (leases.next_at, leases.end_of("a"), leases.end_of("c")) == (3.0, 7.0, None)
    assert leases.pop() == "b"
    assert leases.next_at == 7.0
    assert leases.pop() == "a"
    assert (leases.next_at, leases.end_of("a")) == (inf, None)


def test_one_that_is_over_before_its_time_does_not_end_again() -> None:
    leases = Leases()
    leases.add("a", 5.0)
    leases.add("b", 6.0)
    leases.remove("a")
    leases.remove("nobody")
    assert leases.next_at == 6.0

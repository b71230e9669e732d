from collections import Counter

from tessera.sim.connections import Connections


def test_the_connection_that_was_returned_last_is_taken_first():
    pool = Connections(0, num_workers=1)
    a, b, c = (pool.take(0.0) for _ in range(3))
    assert len({a.id, b.id, c.id}) == 3
    pool.give_back(a, 1.0)
    pool.give_back(b, 2.0)
    assert [pool.take(3.0), pool.take(3.0)] == [b, a]
    assert pool.take(3.0).id not in {a.id, b.id, c.id}


def test_an_idle_connection_is_closed_after_five_seconds():
    pool = Connections(0, num_workers=1)
    a, b = pool.take(0.0), pool.take(0.0)
    pool.give_back(a, 1.0)
    pool.give_back(b, 2.0)
    assert pool.take(6.5) == b
    pool.give_back(b, 6.5)
    assert pool.take(11.5) == b
    pool.give_back(b, 11.5)
    assert pool.take(16.6).id not in {a.id, b.id}


def test_each_request_draws_one_of_the_workers_alike():
    pool = Connections(3, num_workers=4)
    counted = Counter(pool.take(0.0).worker for _ in range(4000))
    # 4,000 draws of one in four: 1,000 +- 27; five deviations.
    assert all(865 < counted[worker] < 1135 for worker in range(4))


def test_runs_of_different_seeds_have_no_connection_in_common():
    assert Connections(0, num_workers=1).take(0.0) != Connections(1, num_workers=1).take(0.0)

"""What was tokenised is remembered within bounds, the least recently used going first."""

from concurrent.futures import ThreadPoolExecutor

from tessera.live.token_memo import TokenMemo


def test_ids_are_remembered():
    memo = TokenMemo()
    memo.put(b"a", (1, 2**31 - 1))
    assert list(memo.get(b"a")) == [1, 2**31 - 1]
    assert memo.get(b"b") is None
    assert (len(memo), memo.num_tokens) == (1, 2)


def test_the_least_recently_used_go_first():
    memo = TokenMemo(max_tokens=5)
    memo.put(b"a", (1, 2))
    memo.put(b"b", (3, 4))
    memo.get(b"a")
    memo.put(b"c", (5, 6))
    assert [memo.get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]
    assert memo.num_tokens == 4


def test_a_text_counts_once():
    memo = TokenMemo()
    memo.put(b"a", (1, 2, 3))
    memo.put(b"a", (1,))
    assert (len(memo), memo.num_tokens) == (1, 1)


def test_short_texts_are_bounded_too():
    memo = TokenMemo(max_texts=3)
    for number in range(10):
        memo.put(bytes([number]), ())
    assert (len(memo), memo.num_tokens) == (3, 0)


def test_a_text_larger_than_everything_is_not_kept():
    memo = TokenMemo(max_tokens=2)
    memo.put(b"a", (1, 2))
    memo.put(b"b", (1, 2, 3))
    assert (memo.get(b"a") is not None, memo.get(b"b")) == (True, None)


def test_threads_leave_the_count_right():
    memo = TokenMemo(max_tokens=50)

    def work(start):
        for number in range(start, start + 500):
            memo.put(bytes([number % 40]), range(number % 7))
            memo.get(bytes([number % 13]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert memo.num_tokens == sum(len(ids) for ids in memo._ids.values()) <= 50

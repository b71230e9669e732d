"""What host memory keeps of embeddings."""

from tessera.engine.embedding_store import EmbeddingStore


def test_the_first_to_come_are_the_first_to_go() -> None:
    store = EmbeddingStore(100)
    for name, num_bytes in (("a", 40), ("b", 50), ("a", 40), ("c", 30)):
        store.put(name, num_bytes)
    # "a" came first though it was put again last.
    assert ["a" in store, "b" in store, "c" in store] == [False, True, True]
    assert (store.num_bytes, store.bytes_of("b"), store.bytes_of("a")) == (80, 50, None)
    store.put("d", 20)
    assert store.num_bytes == 100
    store.clear()
    assert (store.num_bytes, "d" in store) == (0, False)


def test_what_is_larger_than_the_whole_is_not_kept_and_evicts_nobody() -> None:
    store = EmbeddingStore(100)
    store.put("a", 100)
    store.put("b", 101)
    assert ("a" in store, "b" in store, store.num_bytes) == (True, False, 100)
    nothing = EmbeddingStore(0)
    nothing.put("a", 1)
    assert "a" not in nothing

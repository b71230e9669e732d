"""The folder that encoders and consumers share."""

from tessera.emulator.embeddings_folder import EmbeddingsFolder


def test_what_was_put_is_there_for_everybody(tmp_path):
    EmbeddingsFolder(tmp_path / "store").put("a1-b.c_d", 880)
    folder = EmbeddingsFolder(tmp_path / "store")
    assert (folder.num_embeds("a1-b.c_d"), folder.num_embeds("other")) == (880, None)
    (path,) = [each for each in (tmp_path / "store").rglob("*") if each.is_file()]
    assert path == tmp_path / "store" / "a1-b.c_d" / "encoder_cache.safetensors"
    content = path.read_bytes()
    # A header's length in 8 bytes, the header, and no tensor.
    assert len(content) == 8 + int.from_bytes(content[:8], "little")


def test_names_that_no_folder_should_have_are_hashed(tmp_path):
    folder = EmbeddingsFolder(tmp_path / "deep" / "store")
    names = ["..", "../up", "/etc/passwd", "", "a/b", ".hidden", "x" * 1000, "\u00fc"]
    for number, name in enumerate(names, 1):
        folder.put(name, number)
    assert [folder.num_embeds(name) for name in names] == list(range(1, len(names) + 1))
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) == len(names)
    assert all(each.parent.parent == tmp_path / "deep" / "store" for each in files)


def test_what_is_broken_is_not_there(tmp_path):
    for number, content in enumerate([b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]"]):
        path = tmp_path / str(number) / "encoder_cache.safetensors"
        path.parent.mkdir()
        path.write_bytes(content)
        assert EmbeddingsFolder(tmp_path).num_embeds(str(number)) is None

"""Does any content make the look at a media part raise, or answer what no part can be?

    python tests/fuzz/fuzz_media.py SECONDS CORPUS [SEEDS ...]

Content is mutated under coverage feedback and read as a picture, a clip and a sound.
Interesting inputs, and one that fails, are written to the folder CORPUS.
"""

import sys
import warnings

MAX_CONTENT_BYTES = 32 * 1024


def main() -> None:
    """Fuzz until the time is over; the exit code is 0 where nothing was found."""
    import atheris

    with atheris.instrument_imports(include=["tessera"]):
        from tessera.core.draft import DraftMedia
        from tessera.core.media.identity import Naming
        from tessera.core.media.mm_hash import HashFactors
        from tessera.core.media.probe import probe
        from tessera.core.media.size import MAX_PIXELS
        from tessera.core.parts import Modality

    naming = Naming(HashFactors(engine_model="m"))

    def read(content: bytes) -> None:
        for modality in Modality:
            item = probe(DraftMedia(modality=modality, content=content), naming=naming, uses_pillow=True)
            assert item.num_bytes == len(content)
            assert (item.width is None) == (item.height is None)
            if item.width is not None and item.height is not None:
                assert 0 < item.width * item.height <= MAX_PIXELS
            assert item.duration_s is None or item.duration_s >= 0
            if modality is Modality.IMAGE:
                assert (item.width is None) == (item.reason is not None)
            assert not item.is_identity_exact or item.width is not None

    warnings.simplefilter("ignore")
    seconds, corpus, *seeds = sys.argv[1:]
    options = [f"-max_total_time={seconds}", f"-max_len={MAX_CONTENT_BYTES}", f"-artifact_prefix={corpus}/"]
    atheris.Setup([sys.argv[0], *options, corpus, *seeds], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

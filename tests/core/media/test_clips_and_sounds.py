"""Are real clips and sounds read as ffmpeg reads them; and cut, damaged or random ones never as an error?

What a cut does to the numbers: a file whose head says its length keeps it. A file
whose length is only that of its content (a plain WAV, an MP3 without counts, the last
page of an Ogg, fragments, a live WebM) has the length of what is left.
"""

import json
import random
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.draft import DraftMedia
from tessera.core.media.probe import AUDIO_FORMATS, SNIFF_BYTES, VIDEO_FORMATS, probe
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_DURATION_S, MAX_FPS, Clip, Sound
from tessera.core.media.window import MAX_BYTES, MAX_STEPS, Window
from tessera.core.parts import MediaItem, Modality

MEDIA = Path(__file__).parents[2] / "media"
MANIFEST = json.loads((MEDIA / "manifest.json").read_text())
CLIPS = [pytest.param(each, id=each["file"]) for each in MANIFEST["clips"]]
SOUNDS = [pytest.param(each, id=each["file"]) for each in MANIFEST["sounds"]]
FILES = [each["file"] for each in (*MANIFEST["clips"], *MANIFEST["sounds"])]

NO_LENGTH = {"flac_piped.flac"}
NUM_FRAMES = {"mp4_cut.mp4": 14, "mp4_first_fragment_in_moov.mp4": 20, "mkv_h264_aac.mkv": 21}
"""Where the container's own count is not what is shown: an edit list, fragments; or where there is only a duration."""
IN_PIECES = {"mp4_fragmented.mp4", "mp4_first_fragment_in_moov.mp4", "webm_piped.webm", "m4a_fragmented.m4a"}
NO_COUNTS = {"mp3_cbr_no_xing.mp3", "mp3_vbr_no_xing.mp3"}

HOW_MANY = pytest.mark.parametrize("num_first", [2048, pytest.param(1 << 20, marks=pytest.mark.slow)])


def clip_of(content: bytes) -> MediaItem:
    return probe(DraftMedia(modality=Modality.VIDEO, url=f"data:video/mp4;base64,{b64encode(content).decode()}"))


def sound_of(content: bytes) -> MediaItem:
    return probe(DraftMedia(modality=Modality.AUDIO, base64=b64encode(content).decode(), format="wav"))


def look(content: bytes) -> tuple[Clip | Sound | None, Window]:
    """What the parser of these bytes finds as a clip, else as a sound, and its window afterwards."""
    window = Window(content)
    window.verify()
    first_bytes = content[:SNIFF_BYTES]
    reads = [(known, known.clip) for known in VIDEO_FORMATS] + [(known, known.sound) for known in AUDIO_FORMATS]
    for known, read in reads:
        if known.matches(first_bytes):
            try:
                return read(window), window
            except Unsized as gave_up:
                if gave_up.reason is not Reason.UNKNOWN_FORMAT:
                    return None, window
    return None, window


def check_limits(found: Clip | Sound | None, window: Window) -> None:
    assert window.bytes_read <= MAX_BYTES
    assert window.num_steps <= MAX_STEPS
    if isinstance(found, Sound):
        assert (found.duration_s is None) == (found.reason is not None)
        assert found.duration_s is None or 0 <= found.duration_s <= MAX_DURATION_S
    elif found is not None:
        assert (found.num_frames is None) == (found.fps is None) == (found.reason is not None)
        assert found.width > 0 < found.height
        assert found.fps is None or 0 < found.fps <= MAX_FPS


@pytest.mark.parametrize("expect", CLIPS)
def test_each_clip_is_as_the_manifest_says(expect: dict[str, Any]) -> None:
    content = (MEDIA / expect["file"]).read_bytes()
    item = clip_of(content)
    num_frames = NUM_FRAMES.get(expect["file"], expect["num_frames"])
    assert (item.width, item.height, item.num_frames) == (expect["width"], expect["height"], num_frames)
    assert item.num_frames / item.duration_s == pytest.approx(expect["fps"], rel=1e-6)
    one_frame = 1 / expect["fps"]
    assert item.duration_s == pytest.approx(expect["duration_s"] or num_frames * one_frame, abs=one_frame)
    assert (item.reason, item.num_bytes, item.has_content) == (None, expect["bytes"], True)
    # One more than is decoded where a sound outlasts the pictures, or the AVI's own head says so.
    assert item.num_frames - expect["num_decoded_frames"] in {0, 1}


@pytest.mark.parametrize("expect", SOUNDS)
def test_each_sound_is_as_the_manifest_says(expect: dict[str, Any]) -> None:
    content = (MEDIA / expect["file"]).read_bytes()
    item = sound_of(content)
    assert (item.sample_rate, item.num_channels) == (expect["sample_rate"], expect["num_channels"])
    assert (item.width, item.num_frames, item.num_bytes) == (None, None, expect["bytes"])
    if expect["file"] in NO_LENGTH:
        assert (item.duration_s, item.reason) == (None, "no-duration")
        return
    assert item.reason is None
    # A packet of AAC or MP3; the other codecs lose nothing between header and decoder.
    is_packed = item.format in {"mp4", "webm"}
    packet = 1024 / expect["sample_rate"] if is_packed else 1e-6
    assert item.duration_s == pytest.approx(expect["decoded_s"], abs=packet)


@HOW_MANY
@pytest.mark.parametrize("expect", CLIPS)
def test_a_cut_clip_is_right_or_has_a_reason(expect: dict[str, Any], num_first: int) -> None:
    content = (MEDIA / expect["file"]).read_bytes()
    num_frames = NUM_FRAMES.get(expect["file"], expect["num_frames"])
    for cut in cuts(content, num_first):
        found, window = look(content[:cut])
        check_limits(found, window)
        if isinstance(found, Sound):
            # As pictures it is only cut off; look() went on to the sound.
            assert found.reason is not None
        elif found is not None:
            assert (found.width, found.height) == (expect["width"], expect["height"])
            if expect["file"] in IN_PIECES:
                assert (found.num_frames or 0) <= num_frames
            else:
                assert found.num_frames in {None, num_frames}


@HOW_MANY
@pytest.mark.parametrize("expect", SOUNDS)
def test_a_cut_sound_is_right_or_has_a_reason(expect: dict[str, Any], num_first: int) -> None:
    content = (MEDIA / expect["file"]).read_bytes()
    whole, _ = look(content)
    assert isinstance(whole, Sound)
    longest_s = 0.0
    for cut in sorted(cuts(content, num_first)):
        found, window = look(content[:cut])
        check_limits(found, window)
        if found is None or found.duration_s is None:
            continue
        left = left_of(expect, content, cut, whole.duration_s)
        if left is None:
            assert found == whole
        else:
            assert left[0] <= found.duration_s <= left[1]
            assert found.duration_s >= longest_s
            longest_s = found.duration_s


def left_of(expect: dict[str, Any], content: bytes, cut: int, whole_s: float) -> tuple[float, float] | None:
    """Least and most seconds that are left of a file cut there; nothing where a cut does not change its length."""
    name = expect["file"]
    if name.endswith(".wav"):
        start = content.index(b"data") + 8
        left = whole_s * max(0, cut - start) / (len(content) - start)
        one_block = 2036 / 16_000 if name == "wav_adpcm.wav" else 1e-4
        return left - one_block, left + one_block
    if name.startswith("ogg"):
        positions = [0, *page_positions(content[:cut])]
        skipped = 312 if name == "ogg_opus.opus" else 0
        left = max(0, positions[-1] - skipped) / expect["sample_rate"]
        return left, left
    return (0.0, whole_s) if name in IN_PIECES | NO_COUNTS else None


def page_positions(content: bytes) -> list[int]:
    """Where each whole page of an Ogg with one stream says that it ends."""
    at, found = 0, []
    while at + 27 <= len(content):
        lengths = content[at + 27 : at + 27 + content[at + 26]]
        end = at + 27 + content[at + 26] + sum(lengths)
        if end > len(content) or len(lengths) < content[at + 26]:
            break
        found.append(int.from_bytes(content[at + 6 : at + 14], "little"))
        at = end
    return found


def cuts(content: bytes, num_first: int) -> list[int]:
    """Every byte of the first so many, then 200 places further on."""
    first = min(len(content), num_first)
    rest = range(first, len(content))
    return [*range(first), *random.Random(7).sample(rest, min(200, len(rest)))]


@pytest.mark.parametrize("name", FILES)
def test_any_spelling_of_the_content_says_the_same(name: str) -> None:
    content = (MEDIA / name).read_bytes()
    modality = Modality.VIDEO if name in {each["file"] for each in MANIFEST["clips"]} else Modality.AUDIO
    plain = probe(DraftMedia(modality=modality, base64=b64encode(content).decode()))
    odd = urlsafe_b64encode(content).decode().rstrip("=")
    for media in (
        DraftMedia(modality=modality, url=f"data:;base64,{odd}"),
        DraftMedia(modality=modality, url=f"DATA:image/png;BASE64,{odd[:100]}\n{odd[100:]}"),
        DraftMedia(modality=modality, content=memoryview(content)),
    ):
        assert probe(media) == plain
    assert plain.format is not None


@pytest.mark.parametrize(
    ("name", "modality"),
    [
        ("wav_pcm16.wav", Modality.VIDEO),
        ("mp3_cbr.mp3", Modality.VIDEO),
        ("flac_mono.flac", Modality.VIDEO),
        ("ogg_opus.opus", Modality.VIDEO),
        ("m4a_aac_mono.m4a", Modality.VIDEO),
        ("webm_opus.webm", Modality.VIDEO),
        ("mp4_ntsc.mp4", Modality.AUDIO),
        ("webm_piped.webm", Modality.AUDIO),
        ("avi_mjpeg.avi", Modality.AUDIO),
        ("gif_clip.gif", Modality.AUDIO),
    ],
)
def test_a_sound_is_no_clip_and_a_silent_clip_no_sound(name: str, modality: Modality) -> None:
    item = probe(DraftMedia(modality=modality, content=(MEDIA / name).read_bytes()))
    assert (item.format, item.duration_s, item.width, item.reason) == (None, None, None, "unknown-format")


@pytest.mark.parametrize(
    ("name", "duration_s"), [("mp4_moov_last.mp4", 2.0), ("mp4_fragmented.mp4", 2.2), ("webm_vp8_vorbis.webm", 2.003)]
)
def test_the_sound_of_a_clip_is_heard(name: str, duration_s: float) -> None:
    item = sound_of((MEDIA / name).read_bytes())
    assert (item.duration_s, item.reason) == (duration_s, None)


@pytest.mark.parametrize("modality", [Modality.VIDEO, Modality.AUDIO])
@pytest.mark.parametrize("content", [b"", b"\0", b"no media at all", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8 "])
def test_other_content_is_of_no_known_format(modality: Modality, content: bytes) -> None:
    item = probe(DraftMedia(modality=modality, content=content))
    assert (item.format, item.reason) == (None, "unknown-format")


MAGICS = {
    "mp4": [b"\0\0\0\x14ftypisom\0\0\0\0isom", b"\0\0\0\x08wide", b"\0\0\1\0moov\0\0\0\x6cmvhd", b"\0\0\0\0mdat"],
    "webm": [b"\x1aE\xdf\xa3\x80\x18S\x80g\x01\xff\xff\xff\xff\xff\xff\xff", b"\x1aE\xdf\xa3\x9fB\x86\x81\x01"],
    "avi": [b"RIFF\xff\xff\0\0AVI LIST\xc0\0\0\0hdrlavih\x38\0\0\0", b"RIFF\0\0\0\0AVI "],
    "gif": [b"GIF89a\x40\0\x30\0\0\0\0", b"GIF87a\x40\0\x30\0\xf7\0\0"],
    "wav": [b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0", b"RF64\xff\xff\xff\xffWAVEds64\x1c\0\0\0"],
    "mp3": [b"ID3\4\0\0\0\0\0\x0a", b"\xff\xfb\x90\0", b"\xff\xf3\x40\xc0" + bytes(9) + b"Xing\0\0\0\x0f"],
    "flac": [b"fLaC\0\0\0\x22", b"fLaC\x80\0\0\x22\x10\0\x10\0"],
    "ogg": [b"OggS\0\2" + bytes(20) + b"\1\x13OpusHead\1\2", b"OggS\0\2" + bytes(20) + b"\1\x1e\1vorbis\0\0\0\0\2"],
}


@pytest.mark.parametrize("name", MAGICS)
def test_random_bytes_behind_a_magic_stay_within_the_limits(name: str) -> None:
    @settings(max_examples=200, deadline=None)
    @given(magic=st.sampled_from(MAGICS[name]), rest=st.binary(max_size=400), repeat=st.sampled_from([1, 1, 1, 2000]))
    def check(magic: bytes, rest: bytes, repeat: int) -> None:
        check_limits(*look(magic + rest * repeat))

    check()


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(FILES),
    changes=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_damaged_files_stay_within_the_limits(name: str, changes: list[tuple[int, int]]) -> None:
    content = bytearray((MEDIA / name).read_bytes())
    for at, value in changes:
        content[at % len(content)] = value
    check_limits(*look(bytes(content)))

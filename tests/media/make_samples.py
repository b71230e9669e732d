"""Make the sample clips and sounds anew, and the manifest of what ffprobe and the decoder say of them.

Run by hand where ffmpeg is installed (made with 5.1): ``python tests/media/make_samples.py``.
"""

import json
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXACT = ["-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact", "-map_metadata", "-1"]


def picture(seconds: float = 2, rate: str = "10", size: str = "64x48") -> list[str]:
    return ["-f", "lavfi", "-i", f"testsrc=duration={seconds}:size={size}:rate={rate}"]


def tone(seconds: float = 2, rate: int = 16000) -> list[str]:
    return ["-f", "lavfi", "-i", f"sine=frequency=440:duration={seconds}:sample_rate={rate}"]


H264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "40", "-pix_fmt", "yuv420p", "-g", "10"]
H264 += ["-x264-params", "no-info=1"]
AAC = ["-c:a", "aac", "-b:a", "16k"]
BOTH = [*picture(), *tone(), *H264, *AAC]
OPUS = ["-c:a", "libopus", "-b:a", "12k"]
MP3 = ["-c:a", "libmp3lame", "-b:a", "16k"]
MONO = ["-ac", "1"]
STEREO = ["-ac", "2"]

CLIPS: dict[str, list[str]] = {
    "mp4_moov_last.mp4": BOTH,
    "mp4_faststart.mp4": [*BOTH, "-movflags", "+faststart"],
    "mp4_ntsc.mp4": [*picture(1.001, "30000/1001"), *H264],
    "mp4_anamorphic.mp4": [*picture(1), "-vf", "setsar=2", *H264],
    "mp4_variable_rate.mp4": [*picture(4), "-vf", "select='not(mod(n,3))+lt(n,12)'", "-vsync", "vfr", *H264],
    "mp4_fragmented.mp4": [*BOTH, "-movflags", "+frag_keyframe+empty_moov+default_base_moof"],
    "mp4_first_fragment_in_moov.mp4": [*BOTH, "-movflags", "+frag_keyframe"],
    "mp4_global_sidx.mp4": [*picture(), *H264, "-movflags", "+dash+global_sidx+frag_keyframe+delay_moov"],
    "mov_qtrle.mov": [*picture(0.3), "-c:v", "qtrle", "-an"],
    "3gp_h263.3gp": [*picture(0.4, "15", "176x144"), "-c:v", "h263", "-qscale:v", "31", "-an"],
    "webm_vp8_vorbis.webm": [*picture(), *tone(2, 44100), "-c:v", "libvpx", "-b:v", "30k", "-c:a", "libvorbis"],
    "webm_vp9_opus.webm": [*picture(), *tone(2, 48000), "-c:v", "libvpx-vp9", "-b:v", "30k", *OPUS],
    "mkv_h264_aac.mkv": BOTH,
    "mkv_anamorphic_ntsc.mkv": [*picture(1.001, "30000/1001"), "-vf", "setsar=2", *H264],
    "avi_mpeg4_mp3.avi": [*picture(), *tone(2, 22050), "-c:v", "mpeg4", "-qscale:v", "31", *MP3],
    "avi_mjpeg.avi": [*picture(0.5, "30000/1001"), "-c:v", "mjpeg", "-q:v", "20"],
    "gif_clip.gif": picture(2, "10", "40x30"),
}
COPIES: dict[str, tuple[str, list[str], list[str]]] = {
    "mov_rotated_90.mov": ("mp4_moov_last.mp4", [], ["-metadata:s:v", "rotate=90"]),
    "mp4_rotated_270.mp4": ("mp4_moov_last.mp4", [], ["-metadata:s:v", "rotate=270", "-an"]),
    "mp4_rotated_180.mp4": ("mp4_moov_last.mp4", [], ["-metadata:s:v", "rotate=180", "-an"]),
    "mp4_cut.mp4": ("mp4_moov_last.mp4", ["-ss", "0.55"], []),
}
SOUNDS: dict[str, list[str]] = {
    "wav_pcm16.wav": [*tone(0.5), *MONO],
    "wav_pcm24_six.wav": [*tone(0.02, 48000), "-ac", "6", "-c:a", "pcm_s24le"],
    "wav_u8_stereo.wav": [*tone(0.7, 8000), *STEREO, "-c:a", "pcm_u8"],
    "wav_float.wav": [*tone(0.25), "-c:a", "pcm_f32le"],
    "wav_mulaw.wav": [*tone(1, 8000), "-c:a", "pcm_mulaw"],
    "wav_adpcm.wav": [*tone(1), "-c:a", "adpcm_ms"],
    "wav_rf64.wav": [*tone(0.5), "-rf64", "always"],
    "mp3_cbr.mp3": [*tone(2, 44100), "-b:a", "32k"],
    "mp3_cbr_no_xing.mp3": [*tone(2, 44100), "-b:a", "32k", "-write_xing", "0", "-id3v2_version", "0"],
    "mp3_vbr.mp3": [*tone(2, 44100), *STEREO, "-q:a", "9"],
    "mp3_vbr_no_xing.mp3": [*tone(2, 44100), "-q:a", "9", "-write_xing", "0"],
    "mp3_22050.mp3": [*tone(2, 22050), "-b:a", "16k"],
    "mp3_8000.mp3": [*tone(2, 8000), "-b:a", "8k", *STEREO],
    "flac_mono.flac": [*tone(0.5)],
    "flac_stereo_24.flac": [*tone(0.15, 44100), *STEREO, "-sample_fmt", "s32"],
    "ogg_vorbis.ogg": [*tone(2, 44100), *STEREO, "-c:a", "libvorbis", "-q:a", "0"],
    "ogg_opus.opus": [*tone(2, 16000), *OPUS],
    "ogg_flac.ogg": [*tone(0.5), "-c:a", "flac"],
    "m4a_aac_mono.m4a": [*tone(), *AAC],
    "m4a_aac_stereo.m4a": [*tone(2, 44100), *STEREO, *AAC, "-movflags", "+faststart"],
    "m4a_alac.m4a": [*tone(0.3, 44100), *STEREO, "-c:a", "alac"],
    "m4a_fragmented.m4a": [*tone(), *AAC, "-movflags", "+frag_keyframe+empty_moov", "-frag_duration", "300000"],
    "webm_opus.webm": [*tone(2, 48000), *OPUS],
}
PIPED: dict[str, list[str]] = {
    "wav_piped.wav": [*tone(0.5), "-f", "wav"],
    "flac_piped.flac": [*tone(0.5), "-f", "flac"],
    "webm_piped.webm": [*picture(), "-c:v", "libvpx", "-b:v", "30k", "-f", "webm"],
}


def ffmpeg(*arguments: str) -> bytes:
    command = ["ffmpeg", "-v", "error", "-y", "-threads", "1", *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def probed(path: Path) -> dict[str, Any]:
    command = ["ffprobe", "-v", "error", "-of", "json", "-show_streams", "-show_format", "-count_packets", str(path)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def clip_entry(path: Path) -> dict[str, Any]:
    found = probed(path)
    stream = next(each for each in found["streams"] if each["codec_type"] == "video")
    turns = [each.get("rotation", 0) for each in stream.get("side_data_list", [])]
    width, height = stream["width"], stream["height"]
    if any(turn % 180 for turn in turns):
        width, height = height, width
    num_frames = int(stream.get("nb_frames") or stream["nb_read_packets"])
    fps = float(Fraction(stream["avg_frame_rate"]))
    decoded = ffmpeg("-i", str(path), "-map", "0:v:0", "-vsync", "passthrough", "-f", "framecrc", "-")
    num_decoded = sum(not line.startswith(b"#") for line in decoded.splitlines())
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "width": width,
        "height": height,
        "num_frames": num_frames,
        "num_decoded_frames": num_decoded,
        "fps": fps,
        "duration_s": float(stream.get("duration") or found["format"].get("duration", 0)),
    }


def sound_entry(path: Path) -> dict[str, Any]:
    found = probed(path)
    stream = next(each for each in found["streams"] if each["codec_type"] == "audio")
    rate, channels = int(stream["sample_rate"]), stream["channels"]
    samples = ffmpeg("-i", str(path), "-map", "0:a:0", "-f", "s16le", "-c:a", "pcm_s16le", "-")
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sample_rate": rate,
        "num_channels": channels,
        "duration_s": float(stream.get("duration") or found["format"].get("duration", 0)),
        "decoded_s": len(samples) / (2 * channels * rate),
    }


def main() -> None:
    for name, arguments in (CLIPS | SOUNDS).items():
        ffmpeg(*arguments, *EXACT, str(HERE / name))
    for name, (source, before, after) in COPIES.items():
        ffmpeg(*before, "-i", str(HERE / source), "-c", "copy", *EXACT, *after, str(HERE / name))
    for name, arguments in PIPED.items():
        (HERE / name).write_bytes(ffmpeg(*arguments, *EXACT, "pipe:1"))
    clips = [*CLIPS, *COPIES, "webm_piped.webm"]
    sounds = [*SOUNDS, "wav_piped.wav", "flac_piped.flac"]
    manifest = {
        "clips": [clip_entry(HERE / name) for name in sorted(clips)],
        "sounds": [sound_entry(HERE / name) for name in sorted(sounds)],
    }
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()

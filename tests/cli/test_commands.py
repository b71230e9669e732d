"""Do the commands answer a person, and a program, and say plainly what is wrong?"""

import base64
import io
import json
import socket
import subprocess
import sys
import tomllib
import wave
from pathlib import Path

import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from typer.main import get_command
from typer.testing import CliRunner, Result

from tessera.cli.main import app
from tessera.config.shipped import shipped
from tessera.core.media.colour import ColourMode
from tessera.core.media.mm_hash import HashFactors

MEDIA = Path(__file__).parents[1] / "media"
METRICS_PAGE = Path(__file__).parents[1] / "live" / "data" / "vllm-metrics.txt"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200"})


def as_json(*arguments: str | Path) -> dict:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (1280, 720)).save(path)
    return path


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    buffer = io.BytesIO()
    Image.new("RGB", (640, 480)).save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what is this?"}]
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}))
    return path


@pytest.fixture
def endpoints(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.yaml"
    path.write_text(
        """
endpoints:
- {name: a, address: 10.0.0.1, port: "8000"}
- {name: b, address: 10.0.0.2, port: "8000", labels: {"llm-d.ai/role": encode}}
"""
    )
    return path


@pytest.mark.parametrize("command", get_command(app).commands)
def test_every_command_teaches_in_80_columns(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) > 8
    assert max(map(len, lines)) <= 80
    for option in get_command(app).commands[command].params:
        for name in (*option.opts, *option.secondary_opts) if option.opts[0].startswith("-") else ():
            assert name in result.output


def test_the_list_of_commands_cuts_none_short() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"})
    assert all(f"  {name} " in result.output for name in get_command(app).commands)
    assert "..." not in result.output.partition("Commands:")[2]


def test_the_version_is_the_package_s() -> None:
    result = run("--version")
    assert result.exit_code == 0
    told = tomllib.loads(Path("pyproject.toml").read_text())["project"]["version"]
    assert result.stdout == f"tessera {told}\n"


def test_python_finds_the_command_by_the_package_s_name() -> None:
    command = [sys.executable, "-m", "tessera", "price", "--image", "1280x720", "--family", "qwen3-vl"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "prompt 882 tokens" in told


def test_a_taken_port_is_said_plainly(endpoints: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--endpoints", endpoints, "--metrics-port", 0, "--grpc-port", port)
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_says_what_would_start_and_what_was_added() -> None:
    result = run("check", shipped("quickstart.yaml"), "--show")
    assert result.exit_code == 0
    assert "would start" in result.output
    assert "inflight-load-producer" in result.output


def test_check_reports_every_problem_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: token-load-scorr}
- {type: token-producer, parameters: {estimate: {image: {mode: dynamc}}}}
- {type: core-metrics-extractor, parameters: {engineConfigs: [{name: mine, kvUsageSpec: "a{"}]}}
schedulingProfiles:
- {name: a, plugins: [{pluginRef: nope}]}
"""
    )
    result = run("check", path)
    assert result.exit_code == 2
    for place in ("plugins[0].type", "plugins[1].parameters.estimate.image.mode", "schedulingProfiles[0].plugins[0]"):
        assert place in result.output
    problems = json.loads(run("check", path, "--format", "json").stdout)
    assert problems["ok"] is False
    assert {each["path"] for each in problems["problems"]} >= {"plugins[0].type"}


LACKING = """apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: latency-scorer}
  - {type: queue-scorer}
schedulingProfiles:
  - {name: default, plugins: [{pluginRef: latency-scorer}, {pluginRef: queue-scorer}]}
"""


def test_check_warns_of_a_plugin_that_only_llm_d_has(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(LACKING)
    result = run("check", config)
    assert result.exit_code == 0
    assert "llm-d has latency-scorer; Tessera does not have it yet" in result.output
    assert as_json("check", config)["missing_plugins"]


def test_check_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = run("check", tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert "none.yaml" in result.output


def test_price_of_a_size_by_the_models_rule_and_by_llm_ds() -> None:
    priced = as_json("price", "--image", "1280x720", "--family", "qwen3-vl")
    assert priced["family"] == "qwen3-vl"
    item = priced["items"][0]
    assert (item["num_tokens"], item["num_embeds"], item["llmd_num_tokens"]) == (880, 880, 900)
    assert (item["rule_basis"], item["size_basis"], item["basis"]) == ("declared", "exact", "declared")
    assert priced["num_prompt_tokens"] == 882


def test_price_of_files_and_requests(photo: Path, request_file: Path) -> None:
    priced = as_json("price", request_file, photo)
    assert [(item["format"], item["width"], item["height"]) for item in priced["items"]] == [
        ("png", 640, 480),
        ("jpeg", 1280, 720),
    ]
    assert [item["num_tokens"] for item in priced["items"]] == [300, 900]
    assert priced["num_text_tokens"] == -(-len("userwhat is this?") // 4)
    assert "1280x720" in run("price", request_file, photo).output


def test_price_of_a_clip_by_its_headers() -> None:
    priced = as_json("price", "--video", "1280x720@24x10")
    assert priced["items"][0]["num_tokens"] == 20 * 900
    assert (priced["items"][0]["basis"], priced["items"][0]["reason"]) == ("default", "header")


def test_price_of_a_clip_and_a_sound_by_the_models_rule() -> None:
    (clip,) = as_json("price", "--video", "1280x720@24x10", "--family", "qwen3-vl")["items"]
    assert (clip["width"], clip["height"], clip["num_frames"], clip["duration_s"]) == (1280, 720, 240, 10)
    # Ten pairs of frames, 880 cells each, and the times between them; llm-d sees 20 frames of 900.
    assert (clip["num_tokens"], clip["num_embeds"], clip["llmd_num_tokens"]) == (8_880, 8_800, 18_000)
    assert (clip["size_basis"], clip["reason"]) == ("exact", None)
    for family, expected in (("qwen3-omni", 130), ("qwen2.5-omni", 250)):
        (sound,) = as_json("price", "--audio", "10", "--family", family)["items"]
        assert (sound["num_tokens"], sound["duration_s"], sound["llmd_num_tokens"]) == (expected, 10, 106_682)


@pytest.mark.parametrize(("family", "expected"), [("qwen3-omni", 130), ("qwen2.5-omni", 250)])
def test_price_of_a_request_with_ten_seconds_of_sound(tmp_path: Path, family: str, expected: int) -> None:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(bytes(320_000))
    data = base64.b64encode(buffer.getvalue()).decode()
    clip = base64.b64encode((MEDIA / "webm_piped.webm").read_bytes()).decode()
    content = [
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{data}"}},
        {"type": "video_url", "video_url": {"url": f"data:video/webm;base64,{clip}"}},
    ]
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}))
    spoken, linked, clip_item = as_json("price", path, "--family", family)["items"]
    assert (spoken["num_tokens"], spoken["llmd_num_tokens"]) == (expected, 106_683)
    assert (linked["num_tokens"], linked["identifier"]) == (expected, spoken["identifier"])
    assert (clip_item["width"], clip_item["num_frames"], clip_item["size_basis"]) == (64, 20, "exact")


def test_price_of_files_goes_by_what_is_in_them(tmp_path: Path) -> None:
    clip, sound, moving = (tmp_path / name for name in ("a.png", "b.mp4", "c.mp4"))
    clip.write_bytes((MEDIA / "mov_rotated_90.mov").read_bytes())
    sound.write_bytes((MEDIA / "wav_pcm16.wav").read_bytes())
    moving.write_bytes((MEDIA / "gif_clip.gif").read_bytes())
    items = as_json("price", clip, sound, moving, MEDIA / "m4a_aac_mono.m4a", "--family", "qwen3-omni")["items"]
    assert [(item["modality"], item["format"], item["duration_s"]) for item in items] == [
        ("video", "mp4", 2.0),
        ("audio", "wav", 0.5),
        ("image", "gif", None),
        ("audio", "mp4", 2.0),
    ]
    assert (items[0]["width"], items[0]["height"], items[0]["num_frames"]) == (48, 64, 20)
    assert {item["size_basis"] for item in items} == {"exact"}
    table = run("price", clip, sound).output
    assert "48x64 2.0 s" in table
    assert "0.5 s" in table


IMAGES = Path(__file__).parents[1] / "images"
VECTORS = Path(__file__).parents[1] / "core" / "media" / "vectors" / "mm-hash.json"
MODEL = "Qwen/Qwen3-VL-32B-Instruct"
SERVED = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-producer
  parameters: {estimate: {model: {family: qwen3-vl, engineModel: ENGINE}}, tokenizer: {path: tokenizer.json}}
- type: queue-scorer
"""


def tokenizer() -> str:
    """A tokenizer.json that makes one token of each word and each run of other signs."""
    made = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    made.pre_tokenizer = Whitespace()
    return made.to_str()


def vector(name: str) -> str:
    """What vLLM calls a sample picture."""
    hashes = {each["file"]: each.get("hashes", {}) for each in json.loads(VECTORS.read_text())["vectors"]}
    known: str = hashes[name][f"{MODEL}|blake3"]
    return known


@pytest.fixture
def served(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    path = tmp_path / "served.yaml"
    path.write_text(SERVED.replace("ENGINE", MODEL))
    return path


@pytest.mark.parametrize("name", ["png_rgba.png", "tga.tga", "jpeg_cmyk.jpg"])
def test_price_names_pictures_as_the_engine_that_the_configuration_knows(
    served: Path, tmp_path: Path, name: str
) -> None:
    expected = vector(name)
    url = f"data:image/x;base64,{base64.b64encode((IMAGES / name).read_bytes()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    line = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]})
    body, batch = tmp_path / "body.json", tmp_path / "batch.jsonl"
    body.write_text(line)
    batch.write_text(line)
    first, second = as_json("price", body, IMAGES / name, "--config", served)["items"]
    assert [first["identifier"], second["identifier"]] == [expected, expected]
    (record,) = json.loads(run("price", "--batch", batch, "--config", served, "--format", "json").stdout)
    assert record["items"][0]["identifier"] == expected
    (plain,) = as_json("price", IMAGES / name)["items"]
    assert len(plain["identifier"]) == 32


def test_price_names_files_as_the_body_beside_them_says_to_load_them(served: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"messages": [], "media_io_kwargs": {"image": {"image_mode": "RGBA"}}}))
    (item,) = as_json("price", body, IMAGES / "png_rgba.png", "--config", served)["items"]
    content = (IMAGES / "png_rgba.png").read_bytes()
    factors = HashFactors(engine_model=MODEL, media_io_kwargs={"image": {"image_mode": "RGBA"}})
    expected = factors.image_hash(len(content), ColourMode.RGBA)
    assert expected is not None
    expected.update(content)
    assert item["identifier"] == expected.hexdigest()


def test_price_counts_text_by_the_configured_tokenizer(served: Path, request_file: Path, tmp_path: Path) -> None:
    priced = as_json("price", request_file, "--config", served)
    assert (priced["num_text_tokens"], priced["items"][0]["num_tokens"]) == (4, 300)
    assert priced["num_prompt_tokens"] == 4 + 300 + 2
    batch = tmp_path / "batch.jsonl"
    batch.write_text('{"prompt": "one two three"}\n')
    (record,) = json.loads(run("price", "--batch", batch, "--config", served, "--format", "json").stdout)
    assert record["num_prompt_tokens"] == 3


@pytest.fixture
def exact(tmp_path: Path, model_folder: Path) -> Path:
    """A configuration in exact mode, by a model whose tokens are single bytes."""
    path = tmp_path / "exact.yaml"
    model = {"path": str(model_folder), "engineModel": MODEL}
    parameters = {"estimate": {"model": model}, "tokenizer": {"path": str(model_folder)}}
    plugins = [{"type": "token-producer", "parameters": parameters}, {"type": "precise-prefix-cache-producer"}]
    path.write_text(json.dumps({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": plugins}))
    return path


def test_price_and_explain_count_every_token_in_exact_mode(
    exact: Path, request_file: Path, endpoints: Path, tmp_path: Path
) -> None:
    # "<|im_start|>user\n", a marker, 300 cells, a marker, "what is this?", the end, and the assistant's start.
    num_tokens = 6 + 1 + 300 + 1 + 13 + 2 + 1 + 10
    priced = as_json("price", request_file, "--config", exact)
    assert (priced["num_prompt_tokens"], priced["num_text_tokens"]) == (num_tokens, num_tokens - 302)
    (stage,) = as_json("explain", request_file, "--endpoints", endpoints, "--config", exact)["stages"]
    facts = [row["facts"]["PrefixMatch/precise-prefix-cache-producer"] for row in stage["candidates"]]
    assert [(each["num_total_tokens"], each["is_exact"]) for each in facts] == [(num_tokens, True)] * 2
    seen = json.loads(request_file.read_text())
    seen["messages"][0]["content"][0]["uuid"] = "u"
    again = json.loads(json.dumps(seen))
    again["messages"][0]["content"][0]["image_url"] = None
    batch = tmp_path / "batch.jsonl"
    batch.write_text(f"{json.dumps(again)}\n{json.dumps(seen)}\n{json.dumps(again)}\n")
    result = run("price", "--batch", batch, "--config", exact, "--format", "json")
    reasons = [each["items"][0]["reason"] for each in json.loads(result.stdout)]
    assert reasons == ["uuid-only", None, "learned-uuid"]
    assert result.stderr.count("not tokenised as the engine does it: item-size") == 1


def test_price_counts_text_by_the_models_own_tokenizer(request_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3VLForConditionalGeneration"]}))
    assert as_json("price", request_file, "--model-dir", folder)["num_text_tokens"] == 5
    (folder / "tokenizer.json").write_text(tokenizer())
    assert as_json("price", request_file, "--model-dir", folder)["num_text_tokens"] == 4
    (folder / "tokenizer.json").write_text("{}")
    broken = run("price", request_file, "--model-dir", folder)
    assert (broken.exit_code, "no tokenizer.json" in broken.output) == (2, True)


def test_price_has_the_shape_of_the_interfaces(served: Path, request_file: Path) -> None:
    priced = as_json("price", request_file, "--config", served)
    assert list(priced) == ["model", "family", "items", "num_text_tokens", "num_prompt_tokens"]
    assert set(priced["items"][0]) == {
        *("index", "modality", "format", "width", "height", "num_frames", "duration_s", "num_tokens", "num_embeds"),
        *("num_wrapper_tokens", "basis", "rule_basis", "size_basis", "reason", "identifier", "llmd_num_tokens"),
    }


def test_explain_reads_pictures_that_only_pillow_knows(endpoints: Path, tmp_path: Path) -> None:
    url = f"data:image/x;base64,{base64.b64encode((IMAGES / 'tga.tga').read_bytes()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}))
    (item,) = as_json("explain", body, "--endpoints", endpoints)["priced"]["items"]
    assert (item["format"], item["width"], item["height"], item["reason"]) == ("tga", 317, 203, None)
    config = tmp_path / "precise.yaml"
    precise = SERVED.replace("ENGINE", MODEL).replace(", tokenizer: {path: tokenizer.json}", "")
    config.write_text(precise + "- type: precise-prefix-cache-producer\n")
    (item,) = as_json("explain", body, "--endpoints", endpoints, "--config", config)["priced"]["items"]
    (priced,) = as_json("price", body, "--config", config)["items"]
    assert item["identifier"] == priced["identifier"] == vector("tga.tga")


def test_price_of_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text('{"model": "a", "prompt": "12345678"}\n\n{"model": "b", "messages": []}\n')
    result = run("price", "--batch", path, "--format", "json")
    assert [each["num_prompt_tokens"] for each in json.loads(result.stdout)] == [2, 0]


@pytest.mark.parametrize(
    ("body", "arguments", "num_tokens"),
    [
        ({"prompt": "12345678"}, (), 2),
        ({"messages": [{"role": "user", "content": "1234"}]}, (), 2),
        ({"messages": [{"role": "user", "content": "1234"}], "system": "ab"}, (), 4),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}]},
            (),
            226,
        ),
        ({"input": "1234"}, (), 2),
        ({"token_ids": [7, 8, 9]}, (), 3),
        ({"input": "1234", "prompt": "12345678"}, ("--path", "/v1/responses"), 2),
        ({"input": "1234"}, ("--path", "/v1/embeddings"), 0),
    ],
)
def test_price_of_a_body_by_its_fields_or_by_its_path(
    tmp_path: Path, body: dict, arguments: tuple[str, ...], num_tokens: int
) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps(body))
    assert as_json("price", path, *arguments)["num_prompt_tokens"] == num_tokens


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to price"),
        (("--image", "12"), "WIDTHxHEIGHT"),
        (("--image", "0x5"), "WIDTHxHEIGHT"),
        (("--video", "640x360"), "WIDTHxHEIGHT@FPSxSECONDS"),
        (("--video", "640x360@0x10"), "WIDTHxHEIGHT@FPSxSECONDS"),
        (("--video", "640x360@1x0.1"), "less than one frame"),
        (("--audio", "0"), "seconds"),
        (("--audio", "1e9"), "seconds"),
        (("--family", "nope", "--image", "1x1"), "qwen3-vl"),
        (("missing.json",), "missing.json"),
    ],
)
def test_price_says_what_is_wrong(arguments: tuple[str, ...], says: str) -> None:
    result = run("price", *arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_explain_shows_every_endpoint_and_routes_nothing(request_file: Path, endpoints: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.json"
    loads = {"10.0.0.1:8000": {"num_waiting": 4, "num_running": 9}, "10.0.0.2:8000": {"page": str(METRICS_PAGE)}}
    metrics.write_text(json.dumps(loads))
    record = as_json("explain", request_file, "--endpoints", endpoints, "--metrics", metrics)
    rows = {row["endpoint"]: row for row in record["stages"][0]["candidates"]}
    assert rows["10.0.0.1:8000"]["facts"]["Load"]["num_waiting"] == 4
    assert rows["10.0.0.2:8000"]["facts"]["Load"]["num_waiting"] == 0
    assert record["stages"][0]["winner"] == "10.0.0.2:8000"
    assert record["plan"] == {"default": "10.0.0.2:8000"}
    again = as_json("explain", request_file, "--endpoints", endpoints, "--metrics", metrics)
    assert again | {"wall_at": 0} == record | {"wall_at": 0}
    table = run("explain", request_file, "--endpoints", endpoints).output
    assert "winner" in table
    assert "stale-metrics:2/2" in table


def test_explain_takes_the_adapters_of_a_load(request_file: Path, endpoints: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps({"10.0.0.1:8000": {"running_loras": ["a"], "max_loras": 2}}))
    record = as_json("explain", request_file, "--endpoints", endpoints, "--metrics", metrics)
    rows = {row["endpoint"]: row["facts"]["Load"] for row in record["stages"][0]["candidates"]}
    assert (rows["10.0.0.1:8000"]["running_loras"], rows["10.0.0.2:8000"]["running_loras"]) == (["a"], [])
    for wrong in ({"running_loras": 3}, {"running_loras": [3]}, {"max_loras": ["a"]}):
        metrics.write_text(json.dumps({"10.0.0.1:8000": wrong}))
        refused = run("explain", request_file, "--endpoints", endpoints, "--metrics", metrics)
        assert refused.exit_code == 2
        assert "lists of names for LoRA adapters" in " ".join(refused.output.split())


def test_explain_says_which_filter_left_nobody(request_file: Path, endpoints: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: prefill-filter}, {type: random-picker}]
"""
    )
    record = as_json("explain", request_file, "--endpoints", endpoints, "--config", config)
    assert record["rejection"]["reason"] == "rejected-no-endpoints"
    assert record["rejection"]["filter"] == "prefill-filter"
    assert {row["filtered_by"] for row in record["stages"][0]["candidates"]} == {"prefill-filter"}


def test_explain_tells_what_filters_say(endpoints: Path, tmp_path: Path) -> None:
    request = tmp_path / "named.json"
    picture = {"type": "image_url", "image_url": None, "uuid": "mine"}
    request.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": [picture]}]}))
    record = as_json("explain", request, "--endpoints", endpoints)
    said = "kept 1: uuid 'mine' was never seen, so its hash decides"
    assert record["stages"][0]["notes"] == {"cached-media-filter": said}
    assert "uuid-never-seen" in record["guesses"]
    assert f"cached-media-filter: {said}" in run("explain", request, "--endpoints", endpoints).output


def test_plugins_lists_types_and_their_manuals() -> None:
    assert "token-load-scorer" in run("plugins").output
    manual = run("plugins", "token-load-scorer").output
    assert "queueThresholdTokens" in manual
    assert "4194304" in manual
    unknown = run("plugins", "token-load")
    assert unknown.exit_code == 2
    assert "token-load-scorer" in unknown.output
    types = json.loads(run("plugins", "--format", "json").stdout)
    assert {"type", "kind", "parameters", "text"} <= types[0].keys()


def test_envoy_config_lists_only_who_may_face_a_client(endpoints: Path) -> None:
    result = run("envoy-config", "--endpoints", endpoints)
    assert result.exit_code == 0
    assert "10.0.0.1" in result.stdout
    assert "10.0.0.2" not in result.stdout


SESSIONS = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: session-affinity-filter, parameters: {strategy: STRATEGY}}]
"""


@pytest.mark.parametrize(("strategy", "mode"), [("encoded_endpoint_header", "SEND"), ("session_id", "SKIP")])
def test_envoy_config_shows_answers_to_plugins_that_add_to_them(
    endpoints: Path, tmp_path: Path, strategy: str, mode: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(SESSIONS.replace("STRATEGY", strategy))
    # An endpoint that only encodes makes answers interesting in any case.
    endpoints.write_text(endpoints.read_text().replace('llm-d.ai/role": encode', 'llm-d.ai/role": decode'))
    result = run("envoy-config", "--endpoints", endpoints, "--config", config)
    assert f'"response_header_mode": "{mode}"' in result.stdout
    said = "answers carry the token only where the gateway sends us their headers"
    assert (said in run("check", config).output) is (mode == "SEND")


def test_serve_refuses_a_plugin_that_is_missing(endpoints: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(LACKING)
    result = run("serve", "--config", config, "--endpoints", endpoints)
    assert result.exit_code == 2
    assert "--ignore-missing-plugins" in result.output


def test_a_line_of_a_batch_that_would_be_refused_is_named(tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text('{"prompt": "a"}\n\n{bad\n')
    result = run("price", "--batch", path)
    assert result.exit_code == 2
    assert f"{path}:3: the request would be refused: 400" in result.output


def test_why_a_price_is_not_better_known_stands_below_the_table(request_file: Path) -> None:
    text = request_file.read_text().replace('"model": "m"', '"model": "Qwen3-VL"')
    request_file.write_text(text)
    assert "\nfamily-guessed: item 0\n" in run("price", request_file).output


def test_names_are_no_markup(request_file: Path, tmp_path: Path) -> None:
    """A model's name and an IPv6 address may hold what a terminal library takes for a tag."""
    request_file.write_text(request_file.read_text().replace('"model": "m"', '"model": "[/x][bold]"'))
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        'endpoints: [{name: a, address: "fd00::1", port: "8000"}, {name: b, address: 10.0.0.1, port: "80"}]'
    )
    explained = run("explain", request_file, "--endpoints", fleet)
    assert explained.exit_code == 0
    assert "[/x][bold]" in explained.output
    assert "[fd00::1]" in explained.output
    assert "[fd00::1]:8000" in explained.output
    assert "[/x][bold]" in run("price", request_file).output


def test_four_endpoints_can_be_told_apart_on_a_narrow_terminal(request_file: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "endpoints:\n" + "".join(f'- {{name: e{n}, address: 10.100.200.{n}, port: "8000"}}\n' for n in (1, 2, 3, 4))
    )
    arguments = ["explain", str(request_file), "--endpoints", str(fleet)]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).output
    heads = shown.split("winner")[0]
    assert all(f"10.100.200.{number} " in heads for number in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("{family: [a]}", "estimate.model.family: got ['a'], expected one of"),
        ("{family: qwen3-vl, engineModel: 5}", "estimate.model.engineModel: got 5, expected text"),
        ("{family: qwen3-vl, mmProcessorKwargs: {bogus: 1}}", "changes nothing in how qwen3-vl is priced: bogus"),
    ],
)
def test_check_says_what_the_model_s_settings_do_not_do(tmp_path: Path, model: str, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{type: token-producer, parameters: {{estimate: {{model: {model}}}}}}}
"""
    )
    assert says in run("check", path).output


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("llm-d-e-pd", {"decode": "10.0.2.", "encode": "10.0.0."}),
        ("llm-d-p-d", {"decode": "10.0.2.", "prefill": "10.0.1."}),
        ("llm-d-e-p-d", {"decode": "10.0.2.", "prefill": "10.0.1.", "encode": "10.0.0."}),
        ("e-pd-spread", {"decode": "10.0.2."}),
    ],
)
def test_explain_shows_the_plan_of_three_pools(request_file: Path, name: str, stages: dict[str, str]) -> None:
    files = (request_file, "--config", shipped(f"{name}.yaml"), "--endpoints", shipped("endpoints-three-pools.yaml"))
    record = as_json("explain", *files)
    plan, items = record["plan"], {"0"} & record["plan"].keys()
    assert plan.keys() == stages.keys() | items
    assert all(plan[stage].startswith(pool) for stage, pool in stages.items())
    assert items == ({"0"} if "encode" in stages else set())
    assert {each["profile"]: each["work"] for each in record["stages"]} == {stage: stage for stage in stages}
    printed = run("explain", *files).output
    assert ("plan: decode at 10.0.2." in printed) is (len(stages) > 1)
    assert (f"item 0 encoded at {plan.get('encode')}" in printed) is ("encode" in stages)


def test_explain_says_that_a_request_names_no_profile(request_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    text = shipped("llm-d-p-d.yaml").read_text()
    old = "disagg-profile-handler\n    parameters:\n      deciders: {prefill: always-disagg-pd-decider}"
    config.write_text(text.replace(old, "header-profile-handler"))
    files = (request_file, "--config", config, "--endpoints", shipped("endpoints-three-pools.yaml"))
    record = as_json("explain", *files, "--header", "EPP-Profile: prefill")
    assert record["stages"][0]["winner"].startswith("10.0.1.")
    result = run("explain", *files, "--header", "EPP-Profile: train")
    assert result.exit_code == 2
    assert "header EPP-Profile names the profile 'train', expected one of decode, prefill" in result.output

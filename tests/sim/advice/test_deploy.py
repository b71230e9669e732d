"""What is written to be deployed: it loads, it is for the engine that it names, and nothing is lost."""

import json
import re
import subprocess
from dataclasses import replace

import pytest

from tessera.config.endpoints import read_endpoints
from tessera.config.load import load_text
from tessera.core.errors import ConfigError
from tessera.engine.profiles import PROFILES
from tessera.sim.advice.advice import Advice, Question, Setting
from tessera.sim.advice.asked import parse_question
from tessera.sim.advice.candidates import Candidate, Candidates
from tessera.sim.advice.crossover import Variant
from tessera.sim.advice.demand import Bound, demand_of
from tessera.sim.advice.deploy import check_folder, files_of, router_rates, write_deployment
from tessera.sim.advice.ranking import Result, rank
from tessera.sim.advice.search import Edge, Objectives, index_of
from tessera.sim.topology import AGGREGATED, BASE, TOPOLOGIES, Topology

P_D = Topology(name="6p+2d", num_prefill=6, num_decode=2)
SPLITS = [TOPOLOGIES["6e+5pd"], P_D, TOPOLOGIES["4e+4p+2d"]]


def advice(split=None, base=BASE, gpus_per_server=2):
    """Aggregated servers at 2 req/s, and a split that goes twice as far."""
    asked = parse_question("{prompt_tokens: 5, output_tokens: 5}", "scans")
    plain = replace(AGGREGATED, gpus_per_server=gpus_per_server)
    results = [
        Result(Candidate(each, Bound(rate, "all", "TPOT")), tuple(Edge(seed, index_of(rate), ()) for seed in (0, 1, 2)))
        for each, rate in ((plain, 2.0), *(((split, 4.0),) if split else ()))
    ]
    question = Question(asked=asked, base=base, num_gpus=16)
    setting = Setting(
        Variant(asked.workload, asked.size, is_own=True),
        0.3,
        Objectives(0.8, 0.05),
        demand_of(asked.workload, base),
        Candidates((), ()),
    )
    return Advice(question=question, setting=setting, ranking=rank(results), points=(), crossover=None, crowded=None)


@pytest.mark.parametrize("split", [None, *SPLITS], ids=lambda split: split.name if split else "aggregated")
def test_routers_load_endpoints_load_and_scripts_parse(split):
    files = files_of(advice(split))
    folders = {name.split("/")[0] for name in files} - {"README.md"}
    assert folders == {"1-aggregated"} | ({f"2-{split.name}"} if split else set())
    for name, text in files.items():
        if name.endswith("router.yaml"):
            loaded = load_text(text)
            assert (loaded.missing_plugins, loaded.warnings) == ((), ())
        if name.endswith("endpoints.yaml"):
            assert "PLACEHOLDERS" in text
            endpoints, problems = read_endpoints(text)
            assert problems == []
            assert len({each.id for each in endpoints}) == len(endpoints) >= 8
        if name.endswith(".sh"):
            assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def command(script, role):
    """What a script would run for a role, its variables filled in, as words."""
    text = script.replace("exec vllm", "printf '%s\\n' vllm")
    done = subprocess.run(
        ["bash", "-s", role], input=text, text=True, capture_output=True, env={"HOST": "192.0.2.7"}, check=True
    )
    return done.stdout.splitlines()


def option(words, name):
    return words[words.index(name) + 1]


def test_encoders_and_those_that_take_from_them():
    script = files_of(advice(TOPOLOGIES["6e+5pd"]))["2-6e+5pd/servers.sh"]
    assert "vLLM 0.32" in script
    assert re.search(r"encode +6 times, 1 GPU", script)
    assert re.search(r"prefill-decode +5 times, 2 GPU", script)
    encode, compute = command(script, "encode"), command(script, "prefill-decode")
    assert encode[:3] == ["vllm", "serve", "Qwen/Qwen3-VL-32B-Instruct"]
    assert {"--mm-encoder-only", "--enforce-eager", "--no-enable-prefix-caching"} <= set(encode)
    assert (option(encode, "--port"), option(compute, "--port")) == ("8000", "8200")
    assert (option(encode, "--tensor-parallel-size"), option(compute, "--tensor-parallel-size")) == ("1", "2")
    extra = {"ec_enable_nixl": True, "ec_cpu_bytes": 40 << 30}
    for words, role in ((encode, "ec_producer"), (compute, "ec_consumer")):
        assert json.loads(option(words, "--ec-transfer-config")) == {
            "ec_connector": "ECCPUConnector",
            "ec_role": role,
            "ec_connector_extra_config": extra,
        }
        assert "--kv-transfer-config" not in words
    assert 'VLLM_EC_SIDE_CHANNEL_HOST="$HOST"' in script
    assert script.count("VLLM_USE_V2_MODEL_RUNNER=1") == 2


def test_three_stages_hand_over_embeddings_and_kv():
    files = files_of(advice(TOPOLOGIES["4e+4p+2d"]))
    script, sidecar = files["2-4e+4p+2d/servers.sh"], files["2-4e+4p+2d/sidecar.sh"]
    prefill, decode = command(script, "prefill"), command(script, "decode")
    assert json.loads(option(prefill, "--ec-transfer-config"))["ec_role"] == "ec_consumer"
    assert "--ec-transfer-config" not in decode
    for words in (prefill, decode):
        kv = json.loads(option(words, "--kv-transfer-config"))
        assert (kv["kv_connector"], kv["kv_role"]) == ("NixlConnector", "kv_both")
    assert (option(prefill, "--port"), option(decode, "--port")) == ("8000", "8200")
    assert "--kv-connector nixlv2 --ec-connector ec-nixl" in sidecar
    roles = [each.labels["llm-d.ai/role"] for each in read_endpoints(files["2-4e+4p+2d/endpoints.yaml"])[0]]
    assert roles == ["encode"] * 4 + ["prefill"] * 4 + ["decode"] * 2


def test_without_encoders_who_prefills_encodes_with_the_flag():
    files = files_of(advice(P_D))
    prefill = command(files["2-6p+2d/servers.sh"], "prefill")
    assert option(prefill, "--mm-encoder-tp-mode") == "data"
    assert "--ec-transfer-config" not in prefill
    assert "--ec-connector" not in files["2-6p+2d/sidecar.sh"]


def test_the_flag_is_tried_first_and_can_be_switched_off():
    script = files_of(advice())["1-aggregated/servers.sh"]
    assert option(command(script, "all"), "--mm-encoder-tp-mode") == "data"
    switched = script.replace("ENCODER_TP_MODE:-data", "ENCODER_TP_MODE:-weights")
    assert option(command(switched, "all"), "--mm-encoder-tp-mode") == "weights"


def test_the_flag_is_left_out_where_a_server_has_one_gpu():
    files = files_of(advice(base=PROFILES["h100-tp1-qwen3-vl-8b"], gpus_per_server=1))
    words = command(files["1-aggregated/servers.sh"], "all")
    assert "--mm-encoder-tp-mode" not in words
    assert words[2] == "Qwen/Qwen3-VL-8B-Instruct"
    assert option(words, "--mm-processor-cache-gb") == "4"


def test_the_router_reckons_with_the_profiles_rates():
    # Its own defaults are the fitted profile's.
    assert router_rates(BASE) == pytest.approx(
        {
            "prefillTokensPerS": 18_500,
            "encodeSPerItem": 0.003,
            "encodeSPerEmbed": 1.01e-05,
            "encodeSPerEmbedSquared": 5.5e-09,
            "processingSPerMegapixel": 0.0293,
        },
        rel=0.01,
    )
    small = router_rates(PROFILES["h200-tp1-qwen3-vl-8b"])
    # Half the GPUs, 6.95 of 31.2e9 weights.
    assert small["prefillTokensPerS"] == pytest.approx(18_570 / 2 * 31.2 / 6.95, rel=0.001)


def test_nothing_is_overwritten_unless_it_is_asked_for(tmp_path):
    folder = tmp_path / "new" / "deployment"
    check_folder(folder, force=False)
    written = write_deployment(advice(TOPOLOGIES["6e+5pd"]), folder)
    assert [path.relative_to(folder).as_posix() for path in written][:2] == ["README.md", "1-aggregated/servers.sh"]
    assert "2-6e+5pd" in (folder / "README.md").read_text()
    with pytest.raises(ConfigError, match="is not empty; name another folder, or add --force"):
        check_folder(folder, force=False)
    check_folder(folder, force=True)
    with pytest.raises(ConfigError, match="is no folder"):
        check_folder(folder / "README.md", force=True)

"""That the sidecar takes llm-d's flags, refuses plainly what it does not carry out, and runs as a process."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from typer.testing import CliRunner

from tessera.cli import sidecar as command
from tessera.cli.main import app
from tessera.core.flow.settings import FlowSettings
from tessera.core.work import Work
from tessera.live.sidecar.settings import ECConnectorName, SidecarSettings


@pytest.fixture
def told(monkeypatch):
    """Runs the command with flags up to where it would listen: exit code, what it said, the settings."""
    seen = []

    async def run(settings):
        seen.append(settings)

    monkeypatch.setattr(command, "run_until_signalled", run)

    def start(*flags):
        seen.clear()
        result = CliRunner().invoke(app, ["sidecar", *flags], env={"COLUMNS": "200"})
        return result.exit_code, " ".join(result.output.split()), seen[0] if seen else None

    return start


def test_without_flags_it_is_llmds_sidecar(told):
    code, _, settings = told()
    assert (code, settings) == (0, SidecarSettings(bind="0.0.0.0"))
    assert (settings.port, settings.model_port, settings.num_ranks, settings.flow) == (8000, 8200, 1, FlowSettings())


def test_the_flags_of_llmds_guides(told):
    code, _, settings = told(
        "--port=8000", "--vllm-port=8201", "--kv-connector=nixlv2", "--ec-connector=ec-nixl", "--secure-proxy=false",
        "--enable-prefiller-sampling=true", "--prefill-max-retries", "2", "--prefill-retry-backoff=1.5s",
        "--data-parallel-size", "8", "--enable-tls=prefiller,decoder", "--enable-tls", "encoder",
        "--tls-insecure-skip-verify=prefiller", "--decode-chunk-size=0", "--tracing=false", "--enable-p2p-pull=false",
        "--max-idle-conns-per-host", "1024", "--pool-group=inference.networking.k8s.io", "--metrics-port=9091",
        "--encode-timeout", "500ms", "--request-timeout", "10m", "--idle-timeout", "30",
    )  # fmt: skip
    assert code == 0
    assert settings == SidecarSettings(
        bind="0.0.0.0",
        model_port=8201,
        num_ranks=8,
        ec=ECConnectorName.NIXL,
        tls_stages=frozenset(Work),
        unverified_stages=frozenset({Work.PREFILL}),
        samples_prefillers=True,
        metrics_port=9091,
        idle_timeout_s=30.0,
        flow=FlowSettings(
            encode_timeout_s=0.5,
            request_budget_s=600.0,
            prefill_max_retries=2,
            prefill_retry_backoff_s=1.5,
            max_prefill_attempts=12,
        ),
    )


def test_llmds_deprecated_flags_mean_what_replaces_them(told):
    code, _, settings = told(
        *("--connector=nixlv2", "--vllm-port", "8001", "--prefiller-use-tls", "--decoder-use-tls=false"),
        *("--decoder-tls-insecure-skip-verify=true", "--enable-tls", "encoder", "--inference-pool-name="),
    )
    assert code == 0
    assert settings.model_port == 8001
    assert settings.tls_stages == {Work.PREFILL, Work.ENCODE}
    assert settings.unverified_stages == {Work.DECODE}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--kv-connector", "mooncake"], "--kv-connector: got 'mooncake', only nixlv2 is carried out"),
        (["--ec-connector=ec-mooncake"], "--ec-connector: got 'ec-mooncake', expected ec-example, ec-nixl, or nothing"),
        (["--secure-proxy"], "give --cert-path a folder with tls.crt and tls.key"),
        (["--secure-proxy=false", "--cert-path", "/x"], "leave one of them out"),
        (["--enable-ssrf-protection"], "needs --endpoints FILE"),
        (["--enable-tls", "router"], "--enable-tls: got 'router', expected encoder, prefiller, decoder"),
        (["--port", "65530", "--data-parallel-size", "8"], "the last rank's --port would be above 65535"),
        (["--encode-timeout", "soon"], "--encode-timeout: got 'soon', expected a time such as 200ms"),
        (["--encode-timeout", "0"], "--encode-timeout: got '0', expected more than nothing"),
        (["--log-level", "loud"], "--log-level: got 'loud'"),
        (["--inference-pool", "ns/pool"], "give --endpoints FILE"),
        (["--enable-p2p-pull"], "cached prefixes are not fetched from peers"),
        (["--decode-chunk-size=16"], "answers are decoded in one piece"),
        (["--configuration-file", "x.yaml"], "write them as flags"),
        (["--moriio-notify-port=1"], "use --kv-connector nixlv2"),
        (["--zap-log-level=debug"], "give --log-level debug, info, warning or error"),
        (["--inference-pool-name", "pool"], "give --endpoints FILE"),
        (["--prefiller-use-tls=maybe"], "got 'maybe', expected true or false"),
        (["--connector", "lmcache"], "--kv-connector: got 'lmcache', only nixlv2 is carried out"),
        (["--enable-prefiller-sampling=maybe"], "got 'maybe', expected true or false"),
        (["--port", "70000"], "Invalid value for '--port'"),
        (["--no-such-flag"], "No such option"),
    ],
)
def test_what_is_not_carried_out_is_said_and_ends_with_2(told, flags, said):
    code, output, settings = told(*flags)
    assert (code, settings) == (2, None)
    assert said in output.replace("│ ", "").replace(" │", "")


def test_every_problem_at_once(told):
    _, output, _ = told("--kv-connector", "x", "--ec-connector", "y", "--prefill-timeout", "z")
    assert [name in output for name in ("--kv-connector", "--ec-connector", "--prefill-timeout")] == [True] * 3


def test_as_a_process(tmp_path):
    flags = ["--port", "0", "--metrics-port", "-1", "--bind", "127.0.0.1", "--model-server-port", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "sidecar", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    try:
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{ready['ports']['http']}/health", timeout=10)
        page = urllib.request.urlopen(f"http://127.0.0.1:{ready['ports']['metrics']}/metrics", timeout=10).read()
        assert b"tessera_sidecar_stage_seconds" in page
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def test_an_endpoints_file_that_is_not_there_ends_with_2():
    result = CliRunner().invoke(app, ["sidecar", "--port", "0", "--bind", "127.0.0.1", "--endpoints", "/none.yaml"])
    assert result.exit_code == 2
    assert "/none.yaml" in result.output


def test_help_teaches():
    output = CliRunner().invoke(app, ["sidecar", "--help"], env={"COLUMNS": "200"}).output
    for word in ("x-tessera-encode-plan", "x-prefiller-host-port", "x-tessera-stages", "--ec-connector", "403"):
        assert word in output

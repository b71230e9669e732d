"""``tessera sidecar``: carry out encode, prefill and decode apart, before a decode server."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import uvloop

from tessera.cli import sidecar_flags as flags
from tessera.cli.go_flags import split_list
from tessera.cli.options import said_plainly
from tessera.cli.running import serve_until_signalled
from tessera.cli.serve import start_logging
from tessera.core.errors import ConfigError, Problem
from tessera.core.flow.settings import FlowSettings
from tessera.core.work import Work
from tessera.live.sidecar.app import Sidecar
from tessera.live.sidecar.settings import MAX_BODY_BYTES, ECConnectorName, SidecarSettings

_SERVERS: Final = {"encoder": Work.ENCODE, "prefiller": Work.PREFILL, "decoder": Work.DECODE}

_log = logging.getLogger("tessera.sidecar")


def sidecar(
    port: flags.Port = 8000,
    model_server_port: flags.ModelServerPort = 8200,
    bind: flags.Bind = "0.0.0.0",
    data_parallel_size: flags.Ranks = 1,
    kv_connector: flags.KVConnector = "nixlv2",
    ec_connector: flags.EC = "",
    endpoints: flags.Endpoints = None,
    enable_ssrf_protection: flags.SSRFProtection = False,
    secure_proxy: flags.SecureProxy = None,
    cert_path: flags.CertPath = None,
    enable_tls: flags.TLSServers = None,
    tls_insecure_skip_verify: flags.UnverifiedServers = None,
    enable_prefiller_sampling: flags.Sampling = False,
    prefill_max_retries: flags.Retries = 0,
    prefill_retry_backoff: flags.Backoff = "200ms",
    encode_timeout: flags.EncodeTimeout = "15s",
    encode_budget: flags.EncodeBudget = "30s",
    max_encode_attempts: flags.EncodeAttempts = 3,
    max_parallel_encodes: flags.ParallelEncodes = 16,
    prefill_timeout: flags.PrefillTimeout = "60s",
    prefill_budget: flags.PrefillBudget = "120s",
    request_timeout: flags.RequestTimeout = "1h",
    connect_timeout: flags.ConnectTimeout = "3s",
    idle_timeout: flags.IdleTimeout = "0",
    drain_timeout: flags.DrainTimeout = "60s",
    max_body_bytes: flags.BodyBytes = MAX_BODY_BYTES,
    metrics_port: flags.MetricsPort = 0,
    tracing: flags.Tracing = False,
    log_level: flags.LogLevel = "info",
) -> None:
    """Stand before a decode server and run encode, prefill and decode where the router says.

    A router's headers name the servers: x-tessera-encode-plan or x-encoder-hosts-ports, and
    x-prefiller-host-port. Each distinct picture, clip or sound is encoded once, all at the same time; what
    fails goes to another server and at the last to the engine itself. The answer's header x-tessera-stages
    says who did what. Everything else is passed on. The flags are those of llm-d's routing sidecar;
    --endpoints, --bind, the timeouts and the limits are ours.

        tessera sidecar --ec-connector ec-nixl --endpoints endpoints.yaml

    Prints one JSON line when ready: {"ready": true, "ports": {...}}. SIGTERM lets requests in flight end.
    """
    told = dict(locals())
    with said_plainly():
        start_logging(log_level)
        settings = read_settings(told)
        uvloop.run(run_until_signalled(settings))


def read_settings(told: Mapping[str, Any]) -> SidecarSettings:
    """The settings that the flags mean, by their names in Python.

    Raises:
        ConfigError: every flag that cannot be carried out, with what to use.
    """
    problems = list(_problems(told))
    if problems:
        raise ConfigError(problems)
    times = {name: flags.seconds(_flag(name), told[name]) for name in _TIMES}
    return SidecarSettings(
        bind=told["bind"],
        port=told["port"],
        model_port=told["model_server_port"],
        num_ranks=told["data_parallel_size"],
        ec=ECConnectorName(told["ec_connector"]) if told["ec_connector"] else None,
        cert_path=told["cert_path"],
        tls_stages=_stages(told["enable_tls"]),
        unverified_stages=_stages(told["tls_insecure_skip_verify"]),
        endpoints_path=told["endpoints"],
        samples_prefillers=told["enable_prefiller_sampling"],
        metrics_port=None if told["metrics_port"] == 0 else max(0, told["metrics_port"]),
        is_tracing=told["tracing"],
        flow=FlowSettings(
            encode_timeout_s=times["encode_timeout"],
            encode_budget_s=times["encode_budget"],
            max_encode_attempts=told["max_encode_attempts"],
            max_parallel_encodes=told["max_parallel_encodes"],
            prefill_timeout_s=times["prefill_timeout"],
            prefill_budget_s=times["prefill_budget"],
            prefill_max_retries=told["prefill_max_retries"],
            prefill_retry_backoff_s=times["prefill_retry_backoff"],
            max_prefill_attempts=FlowSettings().max_prefill_attempts * (1 + told["prefill_max_retries"]),
            request_budget_s=times["request_timeout"],
        ),
        connect_timeout_s=times["connect_timeout"],
        idle_timeout_s=times["idle_timeout"] or None,
        drain_timeout_s=times["drain_timeout"],
        max_body_bytes=told["max_body_bytes"],
    )


_TIMES: Final = (
    *("prefill_retry_backoff", "encode_timeout", "encode_budget", "prefill_timeout", "prefill_budget"),
    *("request_timeout", "connect_timeout", "idle_timeout", "drain_timeout"),
)
_MAY_BE_ZERO: Final = frozenset({"prefill_retry_backoff", "idle_timeout", "drain_timeout"})


def _problems(told: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _connector_problems(told)
    yield from _trust_problems(told)
    for name in ("port", "model_server_port"):
        if told[name] and told[name] + told["data_parallel_size"] - 1 > 65535:
            yield Problem("--data-parallel-size", f"the last rank's {_flag(name)} would be above 65535")
    for name in _TIMES:
        try:
            if flags.seconds(_flag(name), told[name]) == 0 and name not in _MAY_BE_ZERO:
                yield Problem(_flag(name), f"got {told[name]!r}, expected more than nothing")
        except ConfigError as error:
            yield from error.problems


def _connector_problems(told: Mapping[str, Any]) -> Iterator[Problem]:
    if told["kv_connector"] != "nixlv2":
        yield Problem("--kv-connector", f"got {told['kv_connector']!r}, only nixlv2 is carried out")
    if told["ec_connector"] not in ("", *ECConnectorName):
        expected = ", ".join(ECConnectorName)
        yield Problem("--ec-connector", f"got {told['ec_connector']!r}, expected {expected}, or nothing")


def _trust_problems(told: Mapping[str, Any]) -> Iterator[Problem]:
    if told["secure_proxy"] and told["cert_path"] is None:
        advice = "give --cert-path a folder with tls.crt and tls.key, or --secure-proxy=false"
        yield Problem("--secure-proxy", f"certificates are not made here, as nobody could check them; {advice}")
    if told["secure_proxy"] is False and told["cert_path"] is not None:
        yield Problem("--cert-path", "given together with --secure-proxy=false; leave one of them out")
    if told["enable_ssrf_protection"] and told["endpoints"] is None:
        yield Problem("--enable-ssrf-protection", "needs --endpoints FILE, which lists the servers that may be asked")
    for name in ("enable_tls", "tls_insecure_skip_verify"):
        unknown = [word for word in split_list(told[name]) if word not in _SERVERS]
        if unknown:
            yield Problem(_flag(name), f"got {unknown[0]!r}, expected {', '.join(_SERVERS)}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _stages(texts: list[str] | None) -> frozenset[Work]:
    return frozenset(_SERVERS[word] for word in split_list(texts))


async def run_until_signalled(settings: SidecarSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    if settings.endpoints_path is None and settings.bind not in ("127.0.0.1", "::1", "localhost"):
        _log.warning("without --endpoints whoever reaches %s may have any server asked", settings.bind)
    running = Sidecar(settings)
    await serve_until_signalled(running, lambda _: running.stop())

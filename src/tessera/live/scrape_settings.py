"""How are metrics pages read, as the operator's data layer says it?"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tessera.config.assemble import DataLayer
from tessera.config.declarations import MIN_INTERVAL_S, EngineConfig, MetricsDataSource
from tessera.core.errors import ConfigError, Problem
from tessera.core.facts import FleetEvent
from tessera.live.metrics_page import ENGINES, EngineSpec, metric_spec
from tessera.live.scrape import ENGINE_LABELS, Scraper

_SPECS = {
    "num_waiting": "queued_requests_spec",
    "num_running": "running_requests_spec",
    "kv_usage": "kv_usage_spec",
    "lora_info": "lora_spec",
    "cache_info": "cache_info_spec",
    "block_size": "cache_block_size_spec",
    "num_blocks": "cache_num_blocks_spec",
}
_LABELS = {"block_size_label": "cache_block_size_label_name", "num_blocks_label": "cache_num_blocks_label_name"}


def make_scraper(
    data_layer: DataLayer,
    on_event: Callable[[FleetEvent], None],
    clock: Callable[[], float],
    on_problem: Callable[[str], None],
) -> Scraper | None:
    """The scraper that the data layer asks for; nothing where it reads no metrics page.

    Raises:
        ConfigError: a spec that is none, an unknown default engine, a certificate that cannot be read.
    """
    source = data_layer.metrics
    if source is None:
        return None
    extractor = data_layer.engines
    engines = engine_table(extractor.engine_configs)
    if extractor.default_engine not in engines:
        message = f"got {extractor.default_engine!r}, expected one of {', '.join(engines)}"
        raise ConfigError([Problem("core-metrics-extractor.defaultEngine", message)])
    return Scraper(
        on_event,
        clock,
        max(source.interval, MIN_INTERVAL_S),
        path=source.path,
        port=source.port,
        tls=_tls(source) if source.scheme == "https" else None,
        engines=engines,
        default_engine=extractor.default_engine,
        engine_labels=tuple(dict.fromkeys((extractor.engine_label_key, *ENGINE_LABELS))),
        on_problem=on_problem,
    )


def engine_table(configs: tuple[EngineConfig, ...]) -> Mapping[str, EngineSpec]:
    """The built-in engines with the operator's changes and additions."""
    engines = dict(ENGINES)
    for index, config in enumerate(configs):
        path = f"core-metrics-extractor.engineConfigs[{index}]"
        known = engines.get(config.name, EngineSpec(name=config.name))
        changes: dict[str, Any] = {
            ours: metric_spec(text, f"{path}.{theirs}")
            for ours, theirs in _SPECS.items()
            if (text := getattr(config, theirs)) is not None
        }
        changes |= {ours: text for ours, theirs in _LABELS.items() if (text := getattr(config, theirs)) is not None}
        engines[config.name] = replace(known, **changes)
    return engines


def _tls(source: MetricsDataSource) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=source.ca_cert_path or None)
        if source.client_cert_path:
            context.load_cert_chain(source.client_cert_path, source.client_key_path or None)
    except OSError as error:
        raise ConfigError([Problem("metrics-data-source", f"a certificate cannot be read: {error}")]) from None
    if source.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

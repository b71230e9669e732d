from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tessera.core.errors import ConfigError
from tessera.core.facts import Load
from tessera.live.metrics_page import (
    ENGINES,
    MAX_LABELS_BYTES,
    MAX_LINES,
    MAX_LORAS,
    MAX_PAGE_BYTES,
    EngineSpec,
    MetricSpec,
    metric_spec,
    read_page,
)

VLLM = ENGINES["vllm"]
SAMPLE = (Path(__file__).parent / "data/vllm-metrics.txt").read_bytes()


def vllm(*lines):
    return read_page("\n".join(lines).encode() + b"\n", VLLM, 7.0)


def test_the_page_of_a_real_vllm():
    reading = read_page(SAMPLE, VLLM, 12.5)
    assert reading.load == Load(
        num_waiting=0,
        num_running=0,
        kv_usage_fraction=0.0,
        block_size=32,
        num_blocks=300,
        num_cache_tokens=9600,
        at=12.5,
    )
    assert reading.num_first_tokens == 23
    assert reading.process_start_at == 1796056941.86
    assert reading.says_load


def test_it_reads_what_a_whole_parser_reads():
    values = {s.name: s.value for family in text_string_to_metric_families(SAMPLE.decode()) for s in family.samples}
    reading = read_page(SAMPLE, VLLM, 0.0)
    assert reading.num_first_tokens == values["vllm:time_to_first_token_seconds_count"]
    assert reading.process_start_at == values["process_start_time_seconds"]
    assert reading.load.num_running == values["vllm:num_requests_running"]


def test_several_engines_behind_one_port_add_up():
    reading = vllm(
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
        'vllm:num_requests_running{engine="1",model_name="m"} 4.0',
        "# TYPE vllm:num_requests_waiting gauge",
        'vllm:num_requests_waiting{engine="0",model_name="m"} 5.0',
        'vllm:num_requests_waiting{engine="1",model_name="m"} 0.0',
        "# TYPE vllm:kv_cache_usage_perc gauge",
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75',
        "# TYPE vllm:time_to_first_token_seconds histogram",
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 10.0',
        'vllm:time_to_first_token_seconds_count{engine="0"} 10.0',
        'vllm:time_to_first_token_seconds_sum{engine="0"} 3.5',
        'vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 20.0',
        'vllm:time_to_first_token_seconds_count{engine="1"} 20.0',
        'vllm:time_to_first_token_seconds_sum{engine="1"} 1.5',
        "# TYPE vllm:cache_config_info gauge",
        'vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="1600",num_gpu_blocks="100"} 1.0',
        'vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="3200",num_gpu_blocks="200"} 1.0',
    )
    assert reading.load == Load(
        num_running=7,
        num_waiting=5,
        kv_usage_fraction=0.5,
        block_size=16,
        num_blocks=300,
        num_cache_tokens=4800,
        at=7.0,
    )
    assert reading.num_first_tokens == 30


def test_engines_that_disagree_on_the_block_size_have_none():
    load = vllm(
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1.0',
        'vllm:cache_config_info{block_size="32",num_gpu_blocks="10"} 1.0',
    ).load
    assert (load.block_size, load.num_blocks) == (None, 20)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "many", "1e300", "0" * 65, "0x10", "9007199254740994"])
def test_a_value_that_is_no_count_is_unknown_and_only_that_one(value):
    load = vllm(f"vllm:num_requests_waiting {value}", "vllm:num_requests_running 2").load
    assert (load.num_waiting, load.num_running) == (None, 2)


def test_one_bad_series_makes_the_sum_unknown():
    lines = ['vllm:num_requests_waiting{engine="0"} 1', 'vllm:num_requests_waiting{engine="1"} NaN']
    assert vllm(*lines).load.num_waiting is None


@pytest.mark.parametrize(
    ("value", "fraction"), [("0.42", 0.42), ("1.0004", 1.0), ("1.01", None), ("42", None), ("-0.1", None)]
)
def test_usage_is_a_share(value, fraction):
    assert vllm(f"vllm:kv_cache_usage_perc {value}").load.kv_usage_fraction == fraction


@pytest.mark.parametrize("value", ["None", "", "-5", "1e99"])
def test_a_cache_label_that_is_no_number_is_unknown(value):
    load = vllm(f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{value}"}} 1').load
    assert (load.block_size, load.num_blocks) == (16, None)


def test_names_that_begin_alike_are_other_families():
    load = vllm(
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 9',
        "# TYPE vllm:num_requests_waiting gauge",
        "vllm:num_requests_waiting 1",
        'vllm:num_requests_waiting_by_reason{reason="deferred"} 9',
        'x{help="\\nvllm:num_requests_running 5"} 1',
    ).load
    assert (load.num_waiting, load.num_running) == (1, None)


def test_labels_may_hold_braces_quotes_and_what_looks_like_a_label():
    load = vllm(
        r'vllm:num_requests_waiting{model_name="a}\" 7 {,b\\"} 3',
        r'vllm:cache_config_info{a="x,block_size=\"99\"",hash_block_size="64",block_size="16"} 1',
    ).load
    assert (load.num_waiting, load.block_size) == (3, 16)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_waiting 4",
        "vllm:num_requests_waiting\t4",
        "vllm:num_requests_waiting 4 1700000000000",
        "vllm:num_requests_waiting 4\r",
        'vllm:num_requests_waiting{engine="0",} 4.0e0',
        "vllm:num_requests_waiting{} 4",
    ],
)
def test_spellings_of_one_sample(line):
    assert vllm(line).load.num_waiting == 4


@pytest.mark.parametrize(
    "line", ['vllm:num_requests_waiting{a="b 4', "vllm:num_requests_waiting", "vllm:num_requests_waiting{ 4"]
)
def test_a_broken_line_is_no_sample(line):
    assert vllm(line).load.num_waiting is None


def test_the_search_ends_with_the_family():
    page = b"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 1\n# TYPE x gauge\nx 1\n"
    assert read_page(page + b"vllm:num_requests_waiting 5\n", VLLM, 0.0).load.num_waiting == 1


def test_an_empty_page_says_nothing():
    reading = read_page(b"", VLLM, 3.0)
    assert reading.load == Load(at=3.0)
    assert (reading.num_first_tokens, reading.process_start_at, reading.says_load) == (None, None, False)


PAGES = {
    "sglang": (
        'sglang:num_queue_reqs{model_name="m"} 3\nsglang:num_running_reqs{model_name="m"} 8\nsglang:token_usage 0.28\n'
        'sglang:cache_config_info{page_size="64",num_pages="1000"} 1\nsglang:time_to_first_token_seconds_count 11\n',
        Load(num_waiting=3, num_running=8, kv_usage_fraction=0.28, block_size=64, num_blocks=1000, at=1.0),
        11,
    ),
    "trtllm-serve": (
        "trtllm_num_requests_waiting 3\ntrtllm_num_requests_running 8\ntrtllm_kv_cache_utilization 0.5\n"
        "trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 4096\n",
        Load(num_waiting=3, num_running=8, kv_usage_fraction=0.5, block_size=32, num_blocks=4096, at=1.0),
        None,
    ),
    "triton-tensorrt-llm": (
        'nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3\n'
        'nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 8\n'
        'nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m"} 0.5\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m"} 64\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m"} 6239\n',
        Load(num_waiting=3, num_running=8, kv_usage_fraction=0.5, block_size=64, num_blocks=6239, at=1.0),
        None,
    ),
    "triton": (
        'nv_inference_pending_request_count{model="m"} 3\nnv_inference_exec_count{model="m"} 8\n',
        Load(num_waiting=3, num_running=8, at=1.0),
        None,
    ),
}


@pytest.mark.parametrize("engine", PAGES)
def test_other_engines(engine):
    page, load, num_first_tokens = PAGES[engine]
    reading = read_page(page.encode(), ENGINES[engine], 1.0)
    assert (reading.load, reading.num_first_tokens) == (load, num_first_tokens)


def loras(*lines):
    load = vllm("# TYPE vllm:lora_requests_info gauge", *(f"vllm:lora_requests_info{{{line}" for line in lines)).load
    return load.running_loras, load.waiting_loras, load.max_loras


def test_the_latest_state_of_adapters_counts():
    earlier = 'max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.79605e+09'
    latest = 'max_lora="4",running_lora_adapters="a, b",waiting_lora_adapters="c,"} 1.79606e+09'
    expected = (("a", "b"), ("c",), 4)
    assert loras(earlier, latest) == loras(latest, earlier) == expected
    assert loras(earlier, latest.replace("1.79606e+09", "NaN")) == (("old",), (), 4)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('max_lora="many",running_lora_adapters="a"} 1', (("a",), (), None)),
        ('running_lora_adapters=""} 1', ((), (), None)),
        ('max_lora="4"} never', ((), (), None)),
    ],
)
def test_adapters_that_are_told_in_part(line, expected):
    assert loras(line) == expected


def test_names_of_adapters_are_bounded():
    names = ",".join(f"a{number}" for number in range(2 * MAX_LORAS))
    running, _, _ = loras(f'running_lora_adapters="{names}"}} 1')
    assert len(running) == MAX_LORAS


def test_an_engine_of_the_users_own():
    engine = EngineSpec(name="mine", num_waiting=metric_spec('queue{kind="chat \\ text"}'), process_start=None)
    reading = read_page(b'queue{kind="x"} 1\nqueue{a="b",kind="chat \\\\ text"} 2\n', engine, 0.0)
    assert reading.load == Load(num_waiting=2, at=0.0)
    assert replace(VLLM, num_running=metric_spec("mine")).num_waiting == VLLM.num_waiting


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("a:b_1", MetricSpec("a:b_1")),
        (" a { x = 1 , y = z } ", MetricSpec("a", (("x", "1"), ("y", "z")))),
        ('a{x="1"}', MetricSpec("a", (("x", "1"),))),
    ],
)
def test_metric_spec(text, spec):
    assert metric_spec(text) == spec


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{x=1}",
        "1a",
        "a b",
        "a{",
        "a}",
        "a{}",
        "a{x}",
        "a{x=}",
        "a{=1}",
        "a{x=1}y",
        "a{x=1,x=2}",
        "a{x=1=2}",
        "a{{x=1}}",
    ],
)
def test_a_spec_that_is_none_says_where_and_what_is_expected(text):
    with pytest.raises(ConfigError) as caught:
        metric_spec(text, "plugins[1].parameters.engineConfigs[0].kvUsageSpec")
    assert str(caught.value).startswith("plugins[1].parameters.engineConfigs[0].kvUsageSpec: ")
    assert "expected family or family{label=value,...}" in str(caught.value)


def test_a_page_beyond_the_limit_says_nothing():
    line = b"vllm:num_requests_waiting 1\n"
    assert read_page(line + b"#" * (MAX_PAGE_BYTES - len(line)), VLLM, 0.0).load.num_waiting == 1
    assert read_page(line + b"#" * (MAX_PAGE_BYTES + 1 - len(line)), VLLM, 0.0).load == Load(at=0.0)


@pytest.mark.parametrize("line", ["vllm:num_requests_waiting 1", "vllm:num_requests_waiting_x 1"])
def test_more_lines_than_the_limit_say_nothing(line):
    running = "vllm:num_requests_running 1"
    assert vllm(*[line] * (MAX_LINES - 1), running).load.num_waiting == (MAX_LINES - 1 if line[-3] != "x" else None)
    load = vllm(*[line] * (MAX_LINES + 1), running).load
    assert (load.num_waiting, load.num_running) == (None, 1)


def test_labels_beyond_the_limit_say_nothing():
    half = 'a="' + "x" * (MAX_LABELS_BYTES // 2 - 4) + '"'
    line = f"vllm:num_requests_waiting{{{half}}} 1"
    assert vllm(line, line).load.num_waiting == 2
    assert vllm(line, line, 'vllm:num_requests_waiting{a="b"} 1').load.num_waiting is None


fragments = st.sampled_from(
    [
        b"\n",
        b"# TYPE ",
        b"vllm:num_requests_waiting",
        b"vllm:cache_config_info",
        b"{",
        b"}",
        b'"',
        b"\\",
        b"=",
        b",",
        b" ",
        b"1",
        b"NaN",
        b"block_size",
    ]
)


@given(st.lists(fragments | st.binary(max_size=8), max_size=60).map(b"".join))
def test_no_page_makes_it_raise(page):
    load = read_page(page, VLLM, 0.0).load
    assert load.num_waiting is None or load.num_waiting >= 0
    assert load.kv_usage_fraction is None or 0.0 <= load.kv_usage_fraction <= 1.0


@pytest.mark.parametrize("start", [b'{a="', b"{", b'{a="\\', b'{a="",' * 1000])
def test_a_hostile_line_of_four_megabytes_is_read_in_one_pass(start):
    page = b"vllm:num_requests_waiting" + start
    page += b'\\"a=' * ((MAX_PAGE_BYTES - len(page)) // 4)
    assert read_page(page, VLLM, 0.0).load.num_waiting is None

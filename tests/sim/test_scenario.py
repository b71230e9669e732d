import pytest

from tessera.core.errors import ConfigError
from tessera.sim.load_stages import LoadStage
from tessera.sim.policies import named, shipped_policies
from tessera.sim.scenario import load_scenario, parse_scenario, shipped_scenarios

WHOLE = """
description: d
workload: {type: shared-prefix}
load: {rates: [5, 10], duration_s: 100}
"""


def problems(text, tmp_path):
    with pytest.raises(ConfigError) as error:
        parse_scenario(text, "s", tmp_path)
    return [str(problem) for problem in error.value.problems]


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_loads(name):
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.policies
    assert scenario.document.load.runs()


@pytest.mark.parametrize("name", shipped_policies())
def test_every_shipped_policy_loads_and_warns_of_nothing_that_matters(name, tmp_path):
    loaded = named(name).load(tmp_path)
    assert loaded.missing_plugins == ()
    assert named(name).first_token == ("body" if name in {"kubernetes-service", "llm-d-multimodal"} else "counter")


def test_the_article_is_the_published_ladder():
    scenario = load_scenario("article")
    (run,) = scenario.document.load.runs()
    assert run[0] == LoadStage(rate=5, duration_s=600, is_measured=False, pause_s=60)
    assert [(stage.rate, stage.duration_s, stage.pause_s) for stage in run[1:]] == [
        (rate, 100, 60) for rate in (5, 10, 15, 20, 25, 30, 35, 40)
    ]
    assert [policy.title for policy in scenario.policies] == ["kubernetes-service", "llm-d-multimodal"]
    assert [policy.first_token for policy in scenario.policies] == ["body", "body"]
    assert sum(len(column.rates) for column in scenario.document.published) == 48


def test_points_are_runs_of_their_own(tmp_path):
    text = WHOLE.replace("duration_s: 100", "duration_s: 90, mode: points, warm_up: {duration_s: 45}")
    runs = parse_scenario(text, "s", tmp_path).document.load.runs()
    assert runs == [
        (LoadStage(rate=rate, duration_s=45, is_measured=False), LoadStage(rate=rate, duration_s=90))
        for rate in (5, 10)
    ]


def test_without_policies_all_that_are_shipped_are_run(tmp_path):
    scenario = parse_scenario(WHOLE, "s", tmp_path)
    assert [policy.title for policy in scenario.policies] == shipped_policies()


def test_a_policy_may_say_more(tmp_path):
    (tmp_path / "mine.yaml").write_text("unread")
    more = "policies: [random, {config: mine.yaml}, {config: mine.yaml, name: by body, first_token: body}]"
    scenario = parse_scenario(WHOLE + more, "s", tmp_path)
    assert [(policy.title, policy.first_token) for policy in scenario.policies] == [
        ("random", "counter"),
        ("mine", "counter"),
        ("by body", "body"),
    ]


def test_other_policies_and_rates_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("unread")
    scenario = parse_scenario(WHOLE + "policies: [{config: random, first_token: body}]", "s", tmp_path / "elsewhere")
    chosen = scenario.with_policies(["mine.yaml", "random", "llm-d-multimodal"]).with_rates((3.0,))
    assert [policy.title for policy in chosen.policies] == ["mine", "random", "llm-d-multimodal"]
    # Its own policy as it stands there; another shipped one as its gateway is.
    assert [policy.first_token for policy in chosen.policies] == ["counter", "body", "body"]
    assert chosen.document.load.rates == (3.0,)
    with pytest.raises(ConfigError, match="no policy"):
        scenario.with_policies(["nobody"])
    with pytest.raises(ConfigError, match="are none"):
        scenario.with_rates((0.001,))
    for rates in ((-1.0,), (float("nan"),), (10_001.0,), (5.0, 5.0)):
        with pytest.raises(ConfigError, match=r"load\.rates"):
            scenario.with_rates(rates)
    with pytest.raises(ConfigError, match="'random' stands twice"):
        scenario.with_policies(["random", "random"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("duration_s: 100", "durationS: 100"), "load.durationS: unknown key"),
        (("[5, 10]", "[]"), "load.rates: got none"),
        (("[5, 10]", "[0]"), "load.rates[0]: got 0, expected more than 0"),
        (("[5, 10]", "[5, 5.0]"), "load.rates: 5 stands twice"),
        (("type: shared-prefix", "type: shared-prefix, width: 16385"), "workload.width: got 16385"),
        (("type: shared-prefix", "type: photos, height: 16385"), "workload.height: got 16385"),
        (("type: shared-prefix", "type: documents, width: 16385"), "workload.width: got 16385"),
        (
            ("type: shared-prefix", "type: shared-prefix, num_groups: 1000000, num_prompts_per_group: 2"),
            "1,000,000 groups of 2 prompts, at most 1,000,000 in all",
        ),
        (
            ("type: shared-prefix", "type: shared-prefix, num_groups: 400000, num_prompts_per_group: 1"),
            "400,000 groups of 3 pictures, at most 1,000,000 in all",
        ),
        (
            ("type: shared-prefix", "type: mixture, parts: [{share: 1.0e+308, workload: {type: documents}}]"),
            "parts[0].share: got 1e+308, expected at most 1000000",
        ),
        (
            ("description: d", "description: d\nservers: [{role: all, num: 600}, {role: all, num: 600}]"),
            "servers: 1,200 in all, at most 1,000 are simulated",
        ),
        (
            ("description: d", "description: d\nprofile: h200-tp1-qwen3-vl-32b-encoder"),
            "profile: h200-tp1-qwen3-vl-32b-encoder only encodes",
        ),
        (
            (
                "description: d",
                "description: d\npolicies: [random]\npublished: "
                "[{policy: nobody, figure: ttft_p50_s, rates: [5], values: [1], within: 0.1}]",
            ),
            "published[0].policy: 'nobody' is none of the scenario's policies, random",
        ),
        (("duration_s: 100", "duration_s: 900000"), "at most 2,000,000 are simulated"),
        (("duration_s: 100", "duration_s: 100, spacing: recorded"), "load.spacing: got 'recorded'"),
        (("type: shared-prefix", "type: shared-prefixes"), "workload.type: unknown workload"),
        (("type: shared-prefix", "type: shared-prefix, width: wide"), "workload.width: got 'wide'"),
        (("description: d", "description: d\nprofile: h200"), "profile: unknown profile 'h200'"),
        (("description: d", "description: d\npolicies: [nobody]"), "policies[0].config: no policy 'nobody'"),
        (("description: d", "description: d\npolicies: [random, random]"), "policies[1]: 'random' stands twice"),
        (("description: d", "description: d\npolicies: [{config: random, first_token: seen}]"), "expected 'body'"),
        (("description: d", "description: d\nseeds: 0"), "seeds: got 0, expected at least 1"),
        (("description: d", "description: d\nservers: [{role: encode, num: 2}]"), "servers: nobody answers"),
        (("description: d", "description: d\nservers: [{role: encoder, num: 2}]"), "servers[0].role: got 'encoder'"),
        (
            ("description: d", "description: d\nendpoints: 2\nservers: [{role: decode, num: 2}]"),
            "endpoints: given together with servers",
        ),
        (("description: d\n", ""), "description: missing"),
        (
            (
                "description: d",
                "description: d\npublished: "
                "[{policy: random, figure: ttft_p50_s, rates: [5, 10], values: [1], within: 0.1}]",
            ),
            "got 1 values for 2 rates",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_its_path(tmp_path, change, message):
    assert any(message in each for each in problems(WHOLE.replace(*change), tmp_path))


def test_a_trace_without_a_rhythm_cannot_be_stretched(tmp_path):
    line = '{"at": 5e-324, "output_tokens": 9, "messages": [{"role": "user", "parts": [{"text": "q", "tokens": 5}]}]}'
    (tmp_path / "t.jsonl").write_text(line)
    text = WHOLE.replace("type: shared-prefix", "type: trace, path: t.jsonl")
    found = problems(text.replace("duration_s: 100", "duration_s: 100, spacing: recorded"), tmp_path)
    assert found == ["load.spacing: got 'recorded', but workload 'trace' has no times"]


def test_what_is_no_mapping_is_no_scenario(tmp_path):
    assert "expected a mapping" in problems("- 1", tmp_path)[0]


def test_a_scenario_that_is_not_there_names_the_nearest():
    with pytest.raises(ConfigError) as error:
        load_scenario("articles")
    assert "did you mean 'article'?" in str(error.value.problems[0])

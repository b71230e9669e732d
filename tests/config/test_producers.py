import pytest

from tessera.config.load import load_data
from tessera.core.errors import ConfigError
from tessera.core.plugin import Filter, Producer, Scorer, plugin


class Heat:
    producer = "heat-producer"


class Light:
    producer = "light-producer"


class Sound:
    producer = "sound-producer"


@pytest.fixture
def chain(registry):
    """heat reads light, light may read sound, a scorer reads heat; each remembers."""

    @plugin("heat-producer", reads=(Light,))
    class HeatProducer(Producer):
        """Heat."""

        produces = Heat

        def record(self, decision):
            """Remember."""

    @plugin("light-producer", optional_reads=(Sound,))
    class LightProducer(Producer):
        """Light."""

        produces = Light

        def observe(self, event):
            """Remember."""

    @plugin("sound-producer")
    class SoundProducer(Producer):
        """Sound."""

        produces = Sound

        def settle(self, outcome):
            """Remember."""
            return ()

    @plugin("heat-scorer", reads=(Heat,))
    class HeatScorer(Scorer):
        """Reads heat."""

        heat_producer_name: str = Heat.producer

        def reads_of(self):
            return ((Heat, self.heat_producer_name),)

        def close(self):
            """Remember."""


def remembers(loaded):
    """Names of the plugins that are told of decisions, without those that always are."""
    return [name for name in names(loaded.router.memories) if name not in {"token-producer", "cached-media-filter"}]


def names(plugins):
    return [each.name for each in plugins]


def test_default_producers_are_added_to_a_fixpoint(config, chain):
    loaded = load_data(config("heat-scorer"))
    assert names(loaded.router.producers) == ["light-producer", "heat-producer"]
    assert remembers(loaded) == ["light-producer", "heat-producer", "heat-scorer"]
    assert [each for each in loaded.additions if each.startswith("producer")] == [
        "producer 'heat-producer': 'heat-scorer' reads Heat",
        "producer 'light-producer': 'heat-producer' reads Light",
    ]


def test_what_is_read_only_optionally_is_not_added_but_comes_first_where_it_is(config, chain):
    loaded = load_data(config("heat-scorer", "heat-producer", "light-producer", "sound-producer"))
    assert remembers(loaded) == ["sound-producer", "light-producer", "heat-producer", "heat-scorer"]


def test_declaration_order_breaks_ties(config, chain):
    named = [{"type": "sound-producer", "name": each} for each in ("c", "a", "b")]
    assert names(load_data(config(*named)).router.producers) == ["c", "a", "b"]


def test_a_producer_of_another_fact_is_refused(config, chain):
    parameters = {"heatProducerName": "sound-producer"}
    with pytest.raises(
        ConfigError, match="reads Heat, which 'sound-producer' does not produce: it is a sound-producer"
    ):
        load_data(config({"type": "heat-scorer", "parameters": parameters}, "sound-producer"))


def test_a_fact_that_nobody_produces_is_a_problem(config, registry):
    @plugin("heat-scorer", reads=(Heat,))
    class HeatScorer(Scorer):
        """Reads heat."""

    with pytest.raises(ConfigError, match="'heat-scorer' reads Heat of 'heat-producer', expected a declared producer"):
        load_data(config("heat-scorer"))


@pytest.mark.parametrize("field", ["reads", "optional_reads"])
def test_a_circle_is_a_problem(config, registry, field):
    @plugin("heat-producer", **{field: (Light,)})
    class HeatProducer(Producer):
        """Heat."""

        produces = Heat

    @plugin("light-producer", **{field: (Heat,)})
    class LightProducer(Producer):
        """Light."""

        produces = Light

    with pytest.raises(ConfigError) as caught:
        load_data(config("queue-scorer", "light-producer", "heat-producer"))
    message = "plugins: these read from each other in a circle: light-producer, heat-producer; break it"
    assert str(caught.value) == message


def test_a_plugin_that_reads_its_own_fact_is_no_circle(config, registry):
    @plugin("heat-producer", optional_reads=(Heat,))
    class HeatProducer(Producer):
        """Heat."""

        produces = Heat

    assert names(load_data(config("heat-producer")).router.producers) == ["heat-producer"]


def test_filters_that_nobody_names_do_not_run(config, registry):
    @plugin("heat-filter")
    class HeatFilter(Filter):
        """Remembers."""

        def observe(self, event):
            """Remember."""

    profiles = [{"name": "p", "plugins": []}]
    loaded = load_data(config("heat-filter", schedulingProfiles=profiles))
    assert remembers(loaded) == []
    assert [each.path for each in loaded.warnings] == ["plugins[0]"]


@pytest.mark.parametrize("method", ["__post_init__", "check", "reads_of"])
def test_a_plugin_that_raises_is_a_problem_with_its_place(config, registry, method):
    def fail(self):
        raise RuntimeError("no such luck")

    namespace = {"__doc__": "Fails.", method: fail, "__module__": __name__}
    plugin("heat-scorer")(type("HeatScorer", (Scorer,), namespace))
    with pytest.raises(ConfigError, match=r"^plugins\[1\].*RuntimeError: no such luck$"):
        load_data(config("queue-scorer", "heat-scorer"))


def test_a_plugin_that_does_both_filters_and_scores(config, registry):
    @plugin("heat-scorer")
    class HeatScorer(Scorer, Filter):
        """Both."""

        kind = "scorer"

    profile = load_data(config("heat-scorer")).router.scheduler.profiles["default"]
    assert names(profile.filters) == ["cached-media-filter", "heat-scorer"]
    assert [(s.name, w) for s, w in profile.scorers] == [("heat-scorer", 1.0)]

import pytest

from tessera.core.errors import ConfigError
from tessera.core.facts import Joined
from tessera.core.fleet import Fleet
from tessera.core.parts import MediaItem
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import ModelProfile
from tessera.engine.profiles import PROFILES
from tessera.engine.requests import MediaSegment, TextSegment
from tessera.sim.content import PATH, Ask, Image, Message, Text, body_of, user
from tessera.sim.policies import named, shipped_policies
from tessera.sim.prompts import MAX_REMEMBERED, Prompts
from tessera.sim.run import family_of
from tessera.sim.servers import endpoints

FAMILY = family_of(PROFILES["h200-tp2-qwen3-vl-32b"])
MODEL = "qwen3-vl-32b"
ASK = Ask(
    (
        Message("system", (Text("s", 64),)),
        Message("user", (Text("q", 200), Image("p", 1920, 1080), Image("l", 640, 360, is_link=True), Text("c", 16))),
    ),
    120,
)


def prompts(profile=None):
    return Prompts(profile or ModelProfile(), MODEL, FAMILY)


def test_the_engine_sees_the_processors_tokens_and_the_roles():
    seen = prompts().see(ASK)
    sizes = [each.num_tokens for each in seen.segments]
    # "system" and "user" before a text are 6 and 4 bytes; 1920x1088 are 60 x 34 cells, 640x352 20 x 11, 2 markers each.
    assert sizes == [64 + 2, 200 + 1, 2040 + 2, 220 + 2, 16]
    assert [type(each) for each in seen.segments] == [TextSegment, TextSegment, MediaSegment, MediaSegment, TextSegment]
    assert seen.segments[2] == MediaSegment("p", 2042, 2040, 1920, 1080)
    assert seen.engaged("r").num_output_tokens == 120


def test_a_role_stands_before_a_picture_that_comes_first():
    segments = prompts().see(user(Image("p", 1280, 720), Text("q", 10), num_output_tokens=1)).segments
    assert [each.num_tokens for each in segments] == [1, 882, 10]


def test_the_same_text_has_the_same_key_and_no_other_has():
    def keys(*parts):
        return [each.key for each in prompts().see(user(*parts, num_output_tokens=1)).segments]

    assert keys(Text("a", 10), Text("b", 10)) == keys(Text("a", 10), Text("b", 10))
    assert len({*keys(Text("a", 10), Text("b", 10)), *keys(Text("a", 11), Text("b", 11))}) == 4


@pytest.mark.parametrize("policy", shipped_policies())
def test_a_body_of_the_same_content_gives_the_same_decision(policy, tmp_path):
    """What the simulator routes is what the live road reads of the body that the client would send."""

    def decide(request_of):
        loaded = named(policy).load(tmp_path)
        fleet = Fleet()
        for endpoint in endpoints(8):
            fleet.apply(Joined(at=0.0, endpoint=endpoint))
            loaded.router.observe(Joined(at=0.0, endpoint=endpoint))
        decisions = []
        for number in range(20):
            request = request_of(loaded.profile, f"r{number}", number % 3)
            decisions.append(loaded.router.decide(request, fleet.view(), float(number), SeededRng(0, f"r{number}")))
        return [(each.priced.num_prompt_tokens, each.destinations, each.stages) for each in decisions]

    asks = [
        ASK,
        user(Image("p", 1280, 720), Text("q", 300), num_output_tokens=5),
        user(Text("t", 9), num_output_tokens=1),
    ]
    made: dict[int, Prompts] = {}

    def simulated(profile, request_id, which):
        reader = made.setdefault(id(profile), Prompts(profile, MODEL, FAMILY))
        return reader.see(asks[which]).routed(request_id, float(request_id[1:]), "c1")

    def live(profile, request_id, which):
        at = float(request_id[1:])
        request, _ = Router.read(
            body_of(asks[which], MODEL), {":path": PATH}, profile, request_id=request_id, at=at, wall_at=at
        )
        return request

    ours, theirs = decide(simulated), decide(live)
    if policy == "kubernetes-service":
        # Live traffic has no connection to be pinned to.
        ours, theirs = [each[0] for each in ours], [each[0] for each in theirs]
        assert ours == theirs
        return
    assert [each[:2] for each in ours] == [each[:2] for each in theirs]
    assert [stage.columns for each in ours for stage in each[2]] == [s.columns for each in theirs for s in each[2]]


def test_the_request_is_what_read_makes_of_the_body():
    request = prompts().see(ASK).routed("r9", 4.5, "c7")
    read, _ = Router.read(body_of(ASK, MODEL), {":path": PATH}, ModelProfile(), request_id="r9", at=4.5, wall_at=4.5)
    assert request.prompts == read.prompts
    assert (request.request_id, request.at, request.stream, request.max_output_tokens) == ("r9", 4.5, True, 120)
    assert request.headers == {"x-connection-id": "c7"}
    media = [part for part in request.prompts[0] if isinstance(part, MediaItem)]
    assert [(each.width, each.height, each.has_content) for each in media] == [(1920, 1080, True), (None, None, False)]


def test_an_ask_is_read_once_and_forgotten_in_time():
    reader = prompts()
    seen = reader.see(ASK)
    assert reader.see(ASK) is seen
    for number in range(MAX_REMEMBERED):
        reader.see(user(Text(f"{number}", 1), num_output_tokens=1))
    assert len(reader._seen) == MAX_REMEMBERED
    assert reader.see(ASK) is not seen


def test_a_picture_that_the_model_refuses_is_told():
    with pytest.raises(ConfigError, match="the model refuses a picture of 8000x16"):
        prompts().see(user(Image("p", 8000, 16), num_output_tokens=1))

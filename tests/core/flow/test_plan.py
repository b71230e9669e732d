"""Which servers headers name, and what is no plan."""

import pytest

from tessera.core.errors import RequestError
from tessera.core.flow.plan import MAX_HOSTS, MAX_VALUE_CHARS, joined, read_plan

PLAN, HOSTS, PREFILL = "x-tessera-encode-plan", "x-encoder-hosts-ports", "x-prefiller-host-port"


def test_nothing_named_is_nothing_elsewhere():
    plan = read_plan({})
    assert (plan.encoder_of(0), plan.encoders, plan.prefillers) == (None, (), ())


def test_llmds_list_goes_round():
    plan = read_plan({HOSTS: "a:1,b:2, c:3,"})
    assert [plan.encoder_of(index) for index in range(5)] == ["a:1", "b:2", "c:3", "a:1", "b:2"]
    assert plan.encoders == ("a:1", "b:2", "c:3")


def test_the_plan_comes_before_the_list_and_leaves_items_out():
    plan = read_plan({PLAN: "0=a:1,2=b:2;alt=c:3,a:1", HOSTS: "z:9"})
    assert [plan.encoder_of(index) for index in range(4)] == ["a:1", None, "b:2", None]
    assert plan.encoders == ("a:1", "b:2", "c:3")


def test_prefillers_keep_their_order_each_once():
    assert read_plan({PREFILL: "[::1]:80,b.c-d_e:65535,[::1]:80"}).prefillers == ("[::1]:80", "b.c-d_e:65535")


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "a:0",
        "a:65536",
        "a:x",
        ":80",
        "http://a:80",
        "a:80/x",
        "a b:80",
        "-a:80",
        "[g]:80",
        "a:80;b:80",
        "a:123456",
    ],
)
@pytest.mark.parametrize("name", [HOSTS, PREFILL])
def test_what_is_no_host_and_port(name, value):
    with pytest.raises(RequestError, match="expected ip:port") as refused:
        read_plan({name: value})
    assert (refused.value.status, refused.value.param) == (400, name)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a:80", "expected an item's index"),
        ("x=a:80", "expected an item's index"),
        ("-1=a:80", "expected an item's index"),
        ("4096=a:80", "expected an item's index"),
        ("0=a:80,0=b:80", "item 0 twice"),
        ("0=a", "expected ip:port"),
        ("0=a:80;b:80", "expected alt="),
        ("0=a:80;alt=b", "expected ip:port"),
        (",".join(f"{index}=a{index}:80" for index in range(MAX_HOSTS + 1)), "more than 256 servers"),
        ("0=a:80;alt=" + ",".join(["a:80"] * (MAX_HOSTS + 1)), "257 servers, at most 256"),
        ("0=" + "a" * MAX_VALUE_CHARS, "32770 characters"),
    ],
)
def test_what_is_no_plan(value, message):
    with pytest.raises(RequestError, match=message):
        read_plan({PLAN: value})


def test_who_may_not_be_asked_leaves_and_the_items_move():
    plan = read_plan({PLAN: "0=a:1,1=b:2,3=b:2;alt=c:3", PREFILL: "a:1,b:2"}).allowed(lambda host: host != "b:2")
    assert [plan.encoder_of(index) for index in range(4)] == ["a:1", "c:3", None, "c:3"]
    assert (plan.encoders, plan.prefillers) == (("a:1", "c:3"), ("a:1",))
    nobody = read_plan({PLAN: "0=a:1"}).allowed(lambda host: False)
    assert (nobody.encoder_of(0), nobody.encoders) == (None, ())
    assert read_plan({HOSTS: "a:1,b:2"}).allowed(lambda host: host == "b:2").encoder_of(0) == "b:2"


def test_repeated_headers_are_one_list():
    pairs = [("X-Prefiller-Host-Port", "a:1"), ("accept", "x"), ("x-prefiller-host-port", "b:2")]
    assert joined(pairs) == {PREFILL: "a:1,b:2"}

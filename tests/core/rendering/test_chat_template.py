"""What a chat template is given, what it may do, and when it takes lists of parts."""

import pytest

from tessera.core.rendering.chat_template import MAX_TEMPLATE_CHARS
from tessera.core.rendering.unrendered import Reason, Unrendered

from .conftest import strftime, template

USER = {"role": "user", "content": [{"type": "text", "text": "Hi "}]}


def rendered(source, messages=(USER,), **given):
    return template(source, eos_token="<|im_end|>").render(list(messages), **{"kwargs": {}, "wall_at": 1e9} | given)


def test_blocks_are_trimmed_as_transformers_trims_them():
    source = "  {% for m in messages %}\n{{ m.role }}\n  {% endfor %}\n."
    assert rendered(source) == "user\n."


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'b': 'é<', 'a': [1, none]} | tojson }}", '{"b": "é<", "a": [1, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, indent=1) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "09 Sep 2001"),
        ("{{ eos_token }}{{ bos_token }}", "<|im_end|>"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "TrueTrueTrue"),
    ],
)
def test_what_a_template_may_use(source, expected):
    assert rendered(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[7].role }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ range(1000000) | list }}",
        "{{ 1 // 0 }}",
    ],
)
def test_what_a_template_may_not_do_leaves_the_prompt_unrendered(source):
    with pytest.raises(Unrendered) as caught:
        rendered(source)
    assert caught.value.reason is Reason.TEMPLATE_FAILED


@pytest.mark.parametrize(
    ("form", "wall_at", "is_told"),
    [
        ("%d %b", 86_400 + 5.0, True),
        ("%d %b", 86_400 + 4.0, False),
        ("%d %b", 86_400 - 6.0, True),
        ("%d %b", 86_400 - 5.0, False),
        ("%H:%M", 30.0, True),
        ("%H:%M", 57.0, False),
        ("%H:%M:%S", 30.0, False),
    ],
)
def test_a_time_that_the_engine_may_write_otherwise(form, wall_at, is_told):
    """It renders some seconds later or earlier, by a clock of its own."""
    source = "{{ strftime_now('" + form + "') }}"
    if is_told:
        assert rendered(source, wall_at=wall_at) == strftime(form, wall_at)
        return
    with pytest.raises(Unrendered) as caught:
        rendered(source, wall_at=wall_at)
    assert caught.value.reason is Reason.CLOCK


def test_only_arguments_that_the_template_asks_for_reach_it():
    source = "{{ enable_thinking }}|{{ eos_token }}|{{ messages | length }}"
    kwargs = {"enable_thinking": False, "eos_token": "x", "messages": [], "else": 1}
    assert rendered(source, kwargs=kwargs) == "False|x|1"


@pytest.mark.parametrize("source", ["{% for m in messages %}", "{{ a b }}", "x" * (MAX_TEMPLATE_CHARS + 1)])
def test_what_is_no_template_is_refused(source):
    with pytest.raises(ValueError, match="chat template"):
        template(source)


@pytest.mark.parametrize(
    ("source", "wraps"),
    [
        ("{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}", True),
        ("{% for m in messages[1:] %}{% for part in m['content'] | list %}{% endfor %}{% endfor %}", True),
        ("{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}", True),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            True,
        ),
        (
            "{% macro show(a, c) %}{% for p in c %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(1, c=m.content) }}{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{% for call in m.tool_calls %}{% endfor %}{{ m.content }}{% endfor %}", False),
        ("{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{{ show([1]) }}", False),
        ("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}{{ show([1]) }}", False),
        ("{% for tool in tools %}{% for p in tool.content %}{% endfor %}{% endfor %}", False),
        (
            "{% set ns = namespace() %}{% set ns.all = messages[1:] %}"
            "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
            False,
        ),
        ("{% for a, b in messages %}{% endfor %}{% for p in content %}{% endfor %}", False),
        ("{% for m in messages %}{% for a, b in m.content %}{% endfor %}{% endfor %}", False),
        (
            "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}"
            "{% for m in messages %}{% for a, b in m.content %}{% endfor %}{% endfor %}",
            True,
        ),
        (
            "{% macro show(c) %}{% macro inner(d) %}{% for p in c %}{% endfor %}{% endmacro %}{% endmacro %}"
            "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            True,
        ),
    ],
)
def test_a_template_that_goes_over_contents_takes_lists(source, wraps):
    assert template(source).wraps_parts is wraps


def test_which_template_knows_the_developer():
    assert template("{% if messages[0].role == 'developer' %}{% endif %}").knows_developer
    assert not template("{# developer #}").knows_developer


@pytest.mark.parametrize(
    ("source", "refuses"),
    [
        ("{% for m in messages %}{{ m.role }}{{ m.content }}{% break %}{% endfor %}", False),
        ("{% for m in messages[1:] if m.role == 'system' %}{{ raise_exception('x') }}{% endfor %}", True),
        ("{{ bos_token }}{{ messages }}", False),
        ("{{ bos_token + 'x' }}", True),
        ("{{ strftime_now('%Y') }}", True),
        ("{% generation %}{{ messages }}{% endgeneration %}", True),
        ("{{ raise_exception('x') if messages | length != 4 }}", False),
        ("{{ raise_exception('x') if messages[2].role == 'system' }}", True),
        ("{{ raise_exception('x') if add_generation_prompt }}{{ 1 / 0 if tools is defined }}", False),
    ],
)
def test_where_a_template_takes_system_text(source, refuses):
    assert template(source).refuses_later_systems is refuses


class TestContinuing:
    source = "{% for m in messages %}[{% for p in m.content %}{{ p.text }}{% endfor %}]{% endfor %}"
    last = ({"role": "assistant", "content": [{"type": "text", "text": "Once upon "}]},)

    def continued(self, source=source, messages=last):
        return rendered(source, messages, add_generation_prompt=False, continues=True)

    def test_the_last_message_is_left_open(self):
        assert self.continued(messages=[USER, *self.last]) == "[Hi ][Once upon "

    def test_what_the_template_trims_is_trimmed(self):
        assert self.continued(self.source.replace("p.text", "p.text | trim")) == "[Once upon"

    def test_content_that_is_a_string(self):
        message = {"role": "assistant", "content": "So"}
        assert self.continued("{{ messages[-1].content }}!", [message]) == "So"
        assert message["content"] == "So"

    @pytest.mark.parametrize(
        ("source", "content"),
        [
            (source, []),
            (source, [{"type": "image"}]),
            ("{{ messages[0].content[0].type }}", [{"type": "text", "text": "lost"}]),
            ("nothing of it", [{"type": "text", "text": "lost"}]),
        ],
    )
    def test_without_words_there_is_nothing_to_continue(self, source, content):
        with pytest.raises(Unrendered):
            self.continued(source, [{"role": "assistant", "content": content}])

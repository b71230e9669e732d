"""What text does the model's chat template make of a conversation?

Needs the library ``jinja2``; this is the one file of ``core`` that imports it. The
template is the operator's; a template that a request brings is never rendered. A
``ChatTemplate`` is immutable and thread-safe.

Source: transformers 5.19, ``utils/chat_template_utils.py``, for the template's
environment and for how a final message is continued; vLLM 0.32, ``renderers/hf.py``, for
the arguments and for what makes a template take messages as lists of parts.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tessera.core.rendering.unrendered import Reason, Unrendered

MAX_TEMPLATE_CHARS: Final = 1 << 20
RESERVED: Final = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "strftime_now"}
    | {"chat_template", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"}
    | {"return_assistant_tokens_mask", "tokenizer_kwargs", "raise_exception"}
)
"""Template arguments that mean something to the engine beside the template, or that it sets itself."""
CLOCK_APART_S: Final = 5.0
"""By which an engine may render a template earlier or later than we do, its clock included."""
_CONTINUE_MARK = "CONTINUE_FINAL_MESSAGE_TAG "

Strftime = Callable[[str, float], str]
"""A format and Unix seconds to text, in the engine's time zone."""


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, *, special_tokens: Mapping[str, str], strftime: Strftime) -> None:
        """Compile ``source``.

        Args:
            source: Jinja, at most ``MAX_TEMPLATE_CHARS``.
            special_tokens: ``bos_token`` and others, as far as the tokenizer has them.
            strftime: what ``strftime_now`` of a template asks.

        Raises:
            ValueError: too long, or not Jinja.
        """
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ValueError(f"the chat template has {len(source)} characters, at most {MAX_TEMPLATE_CHARS} are read")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
        except (jinja2.TemplateError, RecursionError) as error:
            raise ValueError(f"the chat template is not Jinja: {error}") from None
        self._special_tokens = dict(special_tokens)
        self._strftime = strftime
        self._has_content = "content" in source
        self.knows_developer = '"developer"' in source or "'developer'" in source
        """Whether the template speaks of the role; it becomes ``system`` otherwise."""
        self.refuses_later_systems = not _takes_later_systems(source)
        """Whether system text may stand in front only, as far as the engine finds out: it tries a conversation."""
        self.wraps_parts = _takes_lists(tree)
        """Whether messages' contents are lists of parts, vLLM's content format ``openai``; else strings."""

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Any = None,
        documents: Any = None,
        add_generation_prompt: bool = True,
        continues: bool = False,
        kwargs: Mapping[str, Any],
        wall_at: float,
    ) -> str:
        """The prompt's text.

        Args:
            messages: as vLLM hands them to templates; they are not changed.
            tools: the tools' definitions, or nothing.
            documents: the request's documents, or nothing.
            add_generation_prompt: whether an assistant's turn is opened at the end.
            continues: whether the last message is left open, to be continued.
            kwargs: further arguments; what the template does not ask for is left out.
            wall_at: Unix seconds, for templates that write the date.

        Raises:
            Unrendered: the template refuses the conversation, or fails on it.
        """
        asked = {name: value for name, value in kwargs.items() if name in self.variables and name not in RESERVED}
        marked = self._marked(messages) if continues else None
        try:
            text = self._template.render(
                **{**self._special_tokens, **asked},
                messages=marked[0] if marked else list(messages),
                tools=tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                strftime_now=partial(_formatted, self._strftime, wall_at),
            )
        except Unrendered:
            raise
        except Exception:
            raise Unrendered(Reason.TEMPLATE_FAILED) from None
        return _cut(text, marked[1]) if marked else text

    def _marked(self, messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        """The messages with a mark behind the last one's text, and that text."""
        last = dict(messages[-1])
        content = last.get("content")
        if not self._has_content:
            raise Unrendered(Reason.TEMPLATE_FAILED)
        if isinstance(content, str):
            last["content"] = content + _CONTINUE_MARK
            return [*messages[:-1], last], content
        parts = list(content or ())
        place = next((index for index in reversed(range(len(parts))) if "text" in parts[index]), None)
        if place is None:
            raise Unrendered(Reason.TEMPLATE_FAILED)
        text = str(parts[place]["text"])
        parts[place] = {**parts[place], "text": text + _CONTINUE_MARK}
        last["content"] = parts
        return [*messages[:-1], last], text


def _takes_later_systems(source: str) -> bool:
    """Whether the template renders one as the engine tries it: with no function, variable or tag of transformers."""
    bare = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    tried = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]
    try:
        bare.from_string(source).render(messages=tried, add_generation_prompt=False)
    except Exception:
        return False
    return True


def _formatted(strftime: Strftime, wall_at: float, form: str) -> str:
    text = strftime(form, wall_at)
    if any(strftime(form, wall_at + apart) != text for apart in (-CLOCK_APART_S, CLOCK_APART_S)):
        raise Unrendered(Reason.CLOCK)
    return text


def _cut(text: str, final: str) -> str:
    """The text up to the mark; where the template has trimmed the mark, what stands before is trimmed too."""
    bare = _CONTINUE_MARK.strip()
    if final.strip() not in text or bare not in text:
        raise Unrendered(Reason.TEMPLATE_FAILED)
    at = text.rindex(bare)
    is_whole = text.startswith(_CONTINUE_MARK, at)
    return text[:at] if is_whole else text[:at].rstrip()


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Generation(Extension):
    """``{% generation %}``, which marks an assistant's words and prints them as they are."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """The block as a block of its body alone."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _takes_lists(tree: nodes.Template) -> bool:
    """Whether a loop goes over the parts of a message's content. Where vLLM gives up, contents are strings."""
    try:
        return next(_loops_over_content(tree), None) is not None
    except _GivesUp:
        return False


class _GivesUp(Exception):
    """Messages or their parts are given to something else than one variable."""


def _loops_over_content(tree: nodes.Template) -> Iterator[nodes.For]:
    """Every loop that goes over the parts of a message's content."""
    lists = _aliases(tree, "messages")
    loops = list(tree.find_all(nodes.For))
    messages = {_variable(loop.target) for loop in loops if _root(loop.iter) in lists}
    in_macros: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        fed = _parameters_fed_with_content(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            if fed or id(loop) not in in_macros:
                in_macros[id(loop)] = fed
    for loop in loops:
        names = in_macros.get(id(loop), {"content"})
        if _content_of(loop.iter) in messages or (isinstance(loop.iter, nodes.Name) and loop.iter.name in names):
            _variable(loop.target)
            yield loop


def _aliases(tree: nodes.Template, name: str) -> set[str]:
    """The variable and every variable that it, or a part of it, is assigned to."""
    found, waiting = {name}, [name]
    assigned = [(each.target, _root(each.node)) for each in tree.find_all(nodes.Assign)]
    while waiting:
        source = waiting.pop()
        for target, root in assigned:
            if root == source and (alias := _variable(target)) not in found:
                found.add(alias)
                waiting.append(alias)
    return found


def _parameters_fed_with_content(tree: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    names = [each.name for each in macro.args]
    fed = set[str]()
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            fed.update(name for name, given in zip(names, call.args, strict=False) if _content_of(given) in messages)
            fed.update(each.key for each in call.kwargs if each.key in names and _content_of(each.value) in messages)
    return fed


def _bare(node: nodes.Node | None) -> nodes.Node | None:
    """What filters, tests and slices are applied to."""
    while isinstance(node, nodes.Filter | nodes.Test) or _is_slice(node):
        node = node.node  # type: ignore[union-attr]
    return node


def _is_slice(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)


def _root(node: nodes.Node | None) -> str:
    """The variable that is read, empty where it is an expression of another kind."""
    bare = _bare(node)
    return bare.name if isinstance(bare, nodes.Name) and bare.ctx == "load" else ""


def _content_of(node: nodes.Node | None) -> str:
    """The variable whose ``content`` is read, empty where none is."""
    bare = _bare(node)
    if isinstance(bare, nodes.Getattr):
        key = bare.attr
    elif isinstance(bare, nodes.Getitem) and isinstance(bare.arg, nodes.Const):
        key = bare.arg.value
    else:
        return ""
    owner = bare.node
    return owner.name if key == "content" and isinstance(owner, nodes.Name) and owner.ctx == "load" else ""


def _variable(target: nodes.Node) -> str:
    if not isinstance(target, nodes.Name):
        raise _GivesUp
    return target.name

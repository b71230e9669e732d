"""Why can a prompt's token ids not be told?"""

from enum import StrEnum


class Reason(StrEnum):
    """A word for a metric's label and a Decision's guess."""

    NO_RENDERER = "no-renderer"
    """No tokenizer with a chat template is configured."""
    NO_TEMPLATE = "no-template"
    """The model's files hold no chat template."""
    DIALECT = "dialect"
    """The API shape is none whose prompt is rendered here, or the body was not read."""
    SEVERAL_PROMPTS = "several-prompts"
    TEMPLATE_IN_REQUEST = "template-in-request"
    """The request brings a chat template, which is never rendered."""
    OPTION = "option"
    """An option of the request changes the prompt in a way that is not followed."""
    MESSAGE = "message"
    """A message or part is of a shape that the engine refuses, or that is not followed."""
    TEMPLATE_FAILED = "template-failed"
    """The chat template refuses the conversation, or fails on it."""
    CLOCK = "clock"
    """The template writes the time, and the engine may write another, some seconds apart."""
    TEXT = "text"
    """A prompt is too long, or holds what no tokenizer takes."""
    PLACEHOLDERS = "placeholders"
    """The rendered prompt has not one placeholder for each media item."""
    ITEM_RULE = "item-rule"
    """An item's price is not by the served model's own rule."""
    ITEM_SIZE = "item-size"
    """An item's size is not known."""
    ITEM_NAME = "item-name"
    """What the engine calls an item is not known."""
    ITEM_LAYOUT = "item-layout"
    """How the model lays an item's tokens out is not known."""
    TOKEN_ID = "token-id"
    """A token id of the request is none that an engine takes."""
    FAILED = "failed"
    LATE = "late"
    """Tokenising took longer than the request may wait."""
    BUSY = "busy"
    """Earlier requests are still being tokenised past their time."""


class Unrendered(Exception):
    """A prompt has no token ids, for ``reason``."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason

"""How is a client told that nothing of its answer will come?"""

from collections.abc import Mapping

from aiohttp import web

from tessera.core.flow.refusals import error_body
from tessera.core.flow.shapes import Shape


def refusal(
    shape: Shape, status: int, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An error of ours in the words of that API."""
    body = error_body(shape.errors, status, message, param)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)

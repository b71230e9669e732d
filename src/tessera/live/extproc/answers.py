"""What do we tell the gateway? Each ext_proc answer as bytes-ready protobuf."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import msgspec

from tessera.core.errors import Rejected, RequestError
from tessera.core.reading import PATH_HEADERS
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.names import DESTINATION, LB_NAMESPACE, OWN_NAMESPACE, REQUEST_ID_KEY

MAX_PIECE_BYTES = 62_000
"""Body bytes in one FULL_DUPLEX_STREAMED answer; Envoy advises less than 64 KB. Source: llm-d uses the same."""
DROPPED_REASON = "x-llm-d-request-dropped-reason"
ANTHROPIC_SUFFIXES = ("/messages", "/messages/count_tokens")
"""Paths whose clients expect Anthropic's error shape."""
_ANTHROPIC_TYPES = {413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}
"""Its error types by status. Source: Anthropic's API reference, "Errors"."""

CONTINUE_HEADERS = pb.ProcessingResponse(request_headers=pb.HeadersResponse())
CONTINUE_BODY = pb.ProcessingResponse(request_body=pb.BodyResponse())
CONTINUE_TRAILERS = pb.ProcessingResponse(request_trailers=pb.TrailersResponse())
CONTINUE_RESPONSE_HEADERS = pb.ProcessingResponse(response_headers=pb.HeadersResponse())
CONTINUE_RESPONSE_BODY = pb.ProcessingResponse(response_body=pb.BodyResponse())
CONTINUE_RESPONSE_TRAILERS = pb.ProcessingResponse(response_trailers=pb.TrailersResponse())


def route(
    destinations: Sequence[str],
    request_id: str,
    extra: Mapping[str, str],
    *,
    stripped: Sequence[str] = (),
    in_body: bool,
) -> pb.ProcessingResponse:
    """Send the request to the first of ``destinations`` that answers.

    Args:
        destinations: ``ip:port`` in the order to try.
        request_id: ours, so that the access-log entry carries it.
        extra: further headers for the endpoint.
        stripped: headers of the client that the endpoint must not see.
        in_body: whether this answers the body message (BUFFERED) or the headers message.
    """
    listed = ",".join(destinations)
    headers = {DESTINATION: listed, **extra}
    mutation = pb.HeaderMutation(
        set_headers=[_set(name, value) for name, value in headers.items()],
        remove_headers=[name for name in stripped if name not in headers],
    )
    common = pb.CommonResponse(header_mutation=mutation, clear_route_cache=True)
    answer = pb.ProcessingResponse()
    if in_body:
        answer.request_body.response.CopyFrom(common)
    else:
        answer.request_headers.response.CopyFrom(common)
    answer.dynamic_metadata.update({LB_NAMESPACE: {DESTINATION: listed}, OWN_NAMESPACE: {REQUEST_ID_KEY: request_id}})
    return answer


def add_to_response(headers: Mapping[str, str], *, removed: Sequence[str] = ()) -> pb.ProcessingResponse:
    """Let a response's headers through with these, each instead of what the endpoint says under that name.

    Args:
        headers: to set.
        removed: names of headers that the client must not see.
    """
    if not headers and not removed:
        return CONTINUE_RESPONSE_HEADERS
    added = [_set(name, value) for name, value in headers.items()]
    mutation = pb.HeaderMutation(set_headers=added, remove_headers=removed)
    return pb.ProcessingResponse(
        response_headers=pb.HeadersResponse(response=pb.CommonResponse(header_mutation=mutation))
    )


def pieces(body: bytes, *, end_of_stream: bool) -> Iterator[tuple[bytes, bool]]:
    """The body in pieces of at most 62,000 bytes, each with whether it is the last; one empty piece for no bytes."""
    last = max(0, len(body) - 1) // MAX_PIECE_BYTES
    for index in range(last + 1):
        start = index * MAX_PIECE_BYTES
        yield body[start : start + MAX_PIECE_BYTES], end_of_stream and index == last


def echo_request_body(body: bytes, *, end_of_stream: bool) -> Iterator[pb.ProcessingResponse]:
    """Hand a FULL_DUPLEX_STREAMED request body on unchanged."""
    for piece, is_last in pieces(body, end_of_stream=end_of_stream):
        yield pb.ProcessingResponse(request_body=_streamed(piece, is_last))


def echo_response_body(body: bytes, *, end_of_stream: bool) -> Iterator[pb.ProcessingResponse]:
    """Hand a FULL_DUPLEX_STREAMED response body on unchanged."""
    for piece, is_last in pieces(body, end_of_stream=end_of_stream):
        yield pb.ProcessingResponse(response_body=_streamed(piece, is_last))


def speaks_anthropic(headers: Mapping[str, str]) -> bool:
    """Whether a path of the request, as it is or as it was before a rewrite, is of Anthropic's API."""
    paths = (headers.get(name, "").split("?", 1)[0].rstrip("/") for name in PATH_HEADERS)
    return any(path.endswith(ANTHROPIC_SUFFIXES) for path in paths)


def refuse(error: Exception, *, in_anthropics_shape: bool = False) -> pb.ProcessingResponse:
    """Answer the client ourselves, in the JSON error shape of OpenAI's API or of Anthropic's.

    RequestError keeps its 4xx; Rejected becomes 429 or 503 with llm-d's word in
    ``x-llm-d-request-dropped-reason``; anything else is 500 and says nothing of its cause.
    """
    headers = {"content-type": "application/json"}
    param: str | None = None
    code: str | None
    match error:
        case RequestError():
            status, kind, code, message, param = (
                error.status,
                "invalid_request_error",
                error.code,
                error.message,
                error.param,
            )
        case Rejected():
            status, code, message = error.status, str(error.reason), error.message
            kind = "rate_limit_error" if status == HTTPStatus.TOO_MANY_REQUESTS else "service_unavailable_error"
            headers[DROPPED_REASON] = str(error.reason)
            if error.retry_after_s is not None:
                headers["retry-after"] = str(error.retry_after_s)
        case _:
            status, kind, code = HTTPStatus.INTERNAL_SERVER_ERROR, "internal_server_error", "router_error"
            message = "the router failed on this request; its log says why"
    body: dict[str, object] = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    if in_anthropics_shape:
        body = {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, kind), "message": message}}
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(
            status=pb.HttpStatus(code=status),
            headers=pb.HeaderMutation(set_headers=[_set(name, value) for name, value in headers.items()]),
            body=msgspec.json.encode(body),
            details=(code or "router_error").replace(" ", "_"),
        )
    )


def _set(name: str, value: str) -> pb.HeaderValueOption:
    return pb.HeaderValueOption(
        header=pb.HeaderValue(key=name, raw_value=value.encode()),
        append_action=pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def _streamed(piece: bytes, is_last: bool) -> pb.BodyResponse:
    streamed = pb.StreamedBodyResponse(body=piece, end_of_stream=is_last)
    return pb.BodyResponse(response=pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=streamed)))

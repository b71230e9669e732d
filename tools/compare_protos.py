"""Do our wire messages have the field numbers and types of Envoy's own?

Needs the xds-protos package, which must not be installed beside Tessera (it overwrites files of OpenTelemetry).
Run it in an environment of its own:
``python -m venv V && V/bin/pip install xds-protos && PYTHONPATH=src V/bin/python tools/compare_protos.py``.
Exit status 1 when a field differs; a message of ours with no namesake among Envoy's also counts.
"""

import sys

from envoy.service.accesslog.v3 import als_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from tessera.live.extproc import access_log_pb2, ext_proc_pb2

_PAIRS = (
    (ext_proc_pb2.ProcessingRequest, external_processor_pb2.ProcessingRequest),
    (ext_proc_pb2.ProcessingResponse, external_processor_pb2.ProcessingResponse),
    (access_log_pb2.StreamAccessLogsMessage, als_pb2.StreamAccessLogsMessage),
    (access_log_pb2.StreamAccessLogsResponse, als_pb2.StreamAccessLogsResponse),
)
_VARINTS = {FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_INT32}


def _same_wire_type(ours: FieldDescriptor, theirs: FieldDescriptor) -> bool:
    types = {ours.type, theirs.type}
    return len(types) == 1 or types <= _VARINTS


def _enum_names(field: FieldDescriptor) -> set[tuple[int, str]]:
    """Numbers and names without underscores and case: Envoy writes some enums in CamelCase."""
    return {(value.number, value.name.replace("_", "").lower()) for value in field.enum_type.values}


def _compare(ours: Descriptor, theirs: Descriptor, seen: dict[str, int]) -> list[str]:
    """The differences of one message and of all that it holds; ``seen`` collects the fields compared by message."""
    if ours.full_name.startswith("google."):
        return [] if ours.full_name == theirs.full_name else [f"{ours.full_name}: Envoy has {theirs.full_name}"]
    if ours.full_name in seen:
        return []
    seen[ours.full_name] = len(ours.fields)
    found = []
    for field in ours.fields:
        other = theirs.fields_by_name.get(field.name)
        where = f"{ours.full_name}.{field.name}"
        if other is None:
            found.append(f"{where}: Envoy has no such field")
        elif field.number != other.number or field.is_repeated != other.is_repeated:
            found.append(f"{where}: number {field.number}, Envoy's {other.number}, or only one is repeated")
        elif not _same_wire_type(field, other):
            found.append(f"{where}: type {field.type}, Envoy's {other.type}")
        elif field.enum_type and not _enum_names(field) <= _enum_names(other):
            found.append(f"{where}: values {_enum_names(field) - _enum_names(other)} are not Envoy's")
        elif field.message_type:
            found += _compare(field.message_type, other.message_type, seen)
    return found


def _unreached(seen: dict[str, int], *our_files: FileDescriptor) -> list[str]:
    names = [message.full_name for file in our_files for message in file.message_types_by_name.values()]
    return [f"{name}: not reached from a message of the stream" for name in names if name not in seen]


if __name__ == "__main__":
    fields: dict[str, int] = {}
    problems = [line for ours, theirs in _PAIRS for line in _compare(ours.DESCRIPTOR, theirs.DESCRIPTOR, fields)]
    problems += _unreached(fields, ext_proc_pb2.DESCRIPTOR, access_log_pb2.DESCRIPTOR)
    print("\n".join(problems) or f"{sum(fields.values())} fields of {len(fields)} messages agree")
    sys.exit(bool(problems))

"""Which headers do the plugins name, and may they?"""

from tessera.config.plan import Declared, Plan
from tessera.core.headers import KEPT_HEADERS, MAX_NAMED_HEADERS, why_not_kept, why_not_written


def kept_headers(plan: Plan) -> frozenset[str]:
    """The headers that are kept of a request: those that always are, and those that plugins name, in lower case.

    One that may not be kept, and one beyond ``MAX_NAMED_HEADERS``, is a problem of the plan.
    """
    named: dict[str, str] = {}
    for declared, plugin in plan.plugins():
        for where, name in plugin.headers_read():
            if why := why_not_kept(name):
                plan.problem(_place(declared, where), why)
            elif name.lower() not in KEPT_HEADERS:
                named.setdefault(name.lower(), _place(declared, where))
    for name, place in list(named.items())[MAX_NAMED_HEADERS:]:
        plan.problem(
            place, f"{name} is one header too many: at most {MAX_NAMED_HEADERS} may be named, all plugins together"
        )
    return KEPT_HEADERS | named.keys()


def check_written(plan: Plan) -> None:
    """Headers of answers that no plugin may write become problems of the plan."""
    for declared, plugin in plan.plugins():
        for where, name in plugin.headers_written():
            if why := why_not_written(name):
                plan.problem(_place(declared, where), why)


def _place(declared: Declared, where: str) -> str:
    """The path of a parameter of a plugin; an empty one stands for all of them."""
    return f"{declared.path}.parameters.{where}".rstrip(".")

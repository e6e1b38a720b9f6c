"""What operators ask of this node, read from the requests' keys."""

from collections.abc import Mapping

import msgspec
import structlog

from vctl_plans.inspection import OperatorRequest
from vctl_plans.store.port import KeyValue

_log = structlog.get_logger(__name__)


def read_requests(entries: Mapping[str, KeyValue], node: str) -> list[OperatorRequest]:
    """Return the requests that stand and are for *node*; what cannot be read is passed over.

    Args:
        entries: A whole state under `Keys.requests`.
        node: This node's name.
    """
    found = []
    for key, entry in sorted(entries.items()):
        try:
            request: OperatorRequest = msgspec.json.decode(entry.value, type=OperatorRequest)
        except (msgspec.MsgspecError, RecursionError) as problem:
            _log.warning("unreadable request", key=key, problem=str(problem))
            continue
        if request.is_for(node):
            found.append(request)
    return found

"""How alerts that no decision carries come into the store, from which they are sent.

For what is judged without a decision: routes that nodes do not act on, answers that drift.
"""

from collections.abc import Iterable

import structlog

from vctl_plans.alert import Alert
from vctl_plans.errors import Conflict
from vctl_plans.keys import Keys
from vctl_plans.store.commit import alert_txn
from vctl_plans.store.port import Store

_log = structlog.get_logger(__name__)


async def tell(store: Store, keys: Keys, alerts: Iterable[Alert], *, fence: int) -> None:
    """Put alerts into the store, but those that wait there already.

    Telling again what was told is harmless until it is sent; after that it is sent once more, with
    the same id. A conductor whose term has ended tells nothing.

    Args:
        store: The store.
        keys: The fleet's keys.
        alerts: The alerts.
        fence: create_revision of the election key, of the term in which they were judged.

    Raises:
        StoreError: One could not be written, and those after it were not.
    """
    for alert in alerts:
        try:
            await store.commit(alert_txn(keys, alert, fence=fence))
        except Conflict:
            _log.info("alert not told: it waits already, or the term has ended", alert=alert.id)

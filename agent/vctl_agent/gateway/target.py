"""What this node's engine may be asked for: a release, and how it is asked for."""

import msgspec

from vctl_plans.prompt import Template
from vctl_plans.routing import cache_salt


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A release that this node's engine may be handed requests for."""

    service: str
    tenant: str
    number: int
    digest: str
    model: str  # the name to ask the engine for
    weights_root: str
    adapter_root: str
    salt: str  # the cache salt of a request that brings none of its own
    template: Template | None = None  # what is applied to its chats
    model_json: msgspec.Raw = msgspec.Raw()  # both as they stand in a request
    salt_json: msgspec.Raw = msgspec.Raw()

    def __post_init__(self) -> None:
        """Write once what every request takes."""
        for name, value in (("model_json", self.model), ("salt_json", self.salt)):
            written = msgspec.Raw(msgspec.json.encode(value))
            msgspec.structs.force_setattr(self, name, written)

    def salted(self, client_salt: str) -> str:
        """Return the cache salt of a request that brings *client_salt*."""
        if not client_salt:
            return self.salt
        return cache_salt(
            tenant=self.tenant,
            weights_root=self.weights_root,
            adapter_root=self.adapter_root,
            client_salt=client_salt,
        )

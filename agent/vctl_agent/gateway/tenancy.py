"""Tenants on the path of a request: who asks, what they may reach, what goes on with the request.

Without a file of API keys nobody is asked for one: who reaches the gateway reaches its services.
With one, a request belongs to the tenant of the key that it brings, and only that tenant's services
exist for it. Nothing else of a request says who it is from: the header `x-vctl-tenant` is one that
anybody can write.

A client's key ends here. The engine gets its own, if it has one; a peer gets the tenant, in the hop
that the fleet key signs, and looks once more.
"""

from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.apikeys import ApiKeys, hash_of
from vctl_agent.gateway.call import Call, salted_body
from vctl_agent.gateway.hop import Hop
from vctl_agent.gateway.state import Known
from vctl_agent.gateway.wire.fields import Fields
from vctl_plans.routing import TENANT_HEADER, cache_salt

_BEARER = "bearer"
_AUTHORIZATION, _API_KEY = "authorization", "x-api-key"
_KEY_FIELDS = frozenset({_AUTHORIZATION, _API_KEY})


class Tenancy:
    """Tells requests apart by tenant.

    Args:
        keys: Who has which key; None: nobody is asked for one.
        engine_key: The key that the engine asks for; empty: it asks for none.
    """

    def __init__(self, keys: ApiKeys | None = None, *, engine_key: str = "") -> None:
        self._keys = keys
        is_clients = keys is None and not engine_key  # a client's own key is for the engine
        self.kept_here = frozenset() if is_clients else _KEY_FIELDS  # fields that go no further
        self.engine_line = (
            b"Authorization: Bearer %b\r\n" % engine_key.encode() if engine_key else b""
        )

    @property
    def checks_keys(self) -> bool:
        """Whether requests must bring a key."""
        return self._keys is not None

    @property
    def problem(self) -> str:
        """Why the keys that hold are not those of the file; empty: they are, or there is none."""
        return self._keys.problem if self._keys else ""

    def admit(self, headers: Fields) -> str:
        """Return the tenant that a request is of; empty: nobody is asked.

        Raises:
            Refused: 401, it brings no key, one that nobody has, or more than one.
        """
        if self._keys is None:
            return ""
        brought = _brought(headers)
        if not brought:
            raise _unauthorized("no API key: send it as Authorization: Bearer KEY, or as x-api-key")
        if len(brought) > 1:
            raise _unauthorized("more than one API key: it cannot be told whose request this is")
        tenant = self._keys.held.get(hash_of(brought.pop()))
        if tenant is None:
            raise _unauthorized("incorrect API key")
        return tenant

    def can_reach(self, tenant: str, service: str, known: Known) -> bool:
        """Whether the service exists for the tenant that `admit` returned."""
        return self._keys is None or tenant == known.tenant(service)

    def is_anothers(self, tenant: str, name: str, known: Known) -> bool:
        """Whether *name* is of a service of another tenant, also one that vctl has let go.

        Its adapter may be in the engine still, by the service's own name.
        """
        return name in known.tenants and not self.can_reach(tenant, name, known)

    def takes(self, hop: Hop, known: Known) -> bool:
        """Whether a peer's request is one that would have been let in here.

        The sender has checked the key. One that checks none must not be a way around.
        """
        if not hop.tenant:
            return self._keys is None
        return hop.tenant == known.tenant(hop.service)

    def grouped(self, headers: Fields, tenant: str) -> Fields:
        """Return the header fields that groups are told by: the tenant in them is the key's."""
        if self._keys is None:
            return headers
        told = headers.copy()
        told[TENANT_HEADER] = tenant
        return told

    def unmanaged_body(self, call: Call, tenant: str) -> bytes:
        """Return the body of a request for what is no service: as it came, where none is asked.

        Else with a salt of the tenant's own, for all tenants meet in such a model's cache.
        """
        if self._keys is None:
            return call.body

        def salted(client_salt: str) -> str:
            return cache_salt(
                tenant=tenant, weights_root="", adapter_root="", client_salt=client_salt
            )

        return salted_body(call, salted)


def _brought(headers: Fields) -> set[str]:
    """Return the keys that a request brings, each once."""
    found = {value.strip() for value in headers.getall(_API_KEY, ())}
    for value in headers.getall(_AUTHORIZATION, ()):
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() == _BEARER:
            found.add(key.strip())
    return found - {""}


def _unauthorized(message: str) -> Refused:
    return Refused(401, message, code="invalid_api_key")

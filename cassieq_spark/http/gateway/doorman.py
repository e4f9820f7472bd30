"""How many connections there may be, in all and from one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from cassieq_spark.errors import OptionError
from cassieq_spark.http.gateway.refusals import Budget, RefusedError, over_budget
from cassieq_spark.settings.gateway import Limits

#: So much of an IPv6 address is one subscriber's.
_SUBSCRIBER_BITS = 64
_IPV6_BITS = 128
_IPV6 = 6


class Doorman:
    """Counts connections, and says which ones are too many. For one loop.

    Args:
        limits: How many there may be.
        proxies: Addresses and networks of proxies: many clients may come from each of them.

    Raises:
        OptionError: One of them is neither an address nor a network.
    """

    def __init__(self, limits: Limits, proxies: Sequence[str] = ()) -> None:
        self.limits = limits
        self._proxies = [_network(each) for each in proxies]
        self._addresses: Counter[str] = Counter()
        #: Connections now.
        self.count = 0
        #: Told of each refusal.
        self.on_refused: Callable[[Budget], object] = lambda _: None

    def enter(self, host: str | None) -> RefusedError | None:
        """Count a connection; why it is one too many, if it is.

        Args:
            host: The address of the other end, if it has one. Give the same to `leave`.
        """
        self.count += 1
        origin = self._origin(host)
        limits = self.limits
        if origin is not None:
            self._addresses[origin] += 1
            if self._addresses[origin] > limits.address_connections:
                limit = limits.address_connections
                why = (
                    f"{limit} connections from {origin} are open, which is the limit; if that is "
                    "a proxy, start the gateway with --proxy"
                )
                return over_budget(Budget("connections", "address", limit), why)
        if self.count > limits.connections:
            limit = limits.connections
            why = f"{limit} connections are open, which is the limit"
            return over_budget(Budget("connections", "all", limit), why, status=503)
        return None

    def leave(self, host: str | None) -> None:
        """A connection that was counted is closed."""
        self.count -= 1
        origin = self._origin(host)
        if origin is not None:
            self._addresses[origin] -= 1
            if not self._addresses[origin]:
                del self._addresses[origin]

    def refuse(self, error: RefusedError) -> None:
        """Tell of a refusal."""
        if error.budget is not None:
            self.on_refused(error.budget)

    def _origin(self, host: str | None) -> str | None:
        """What counts as one address; None: as many as like may come from there."""
        if host is None:
            return None
        address = ip_address(host.partition("%")[0])
        # So IPv4 clients look to a socket of both families.
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in each for each in self._proxies):
            return None
        if address.version == _IPV6:
            shift = _IPV6_BITS - _SUBSCRIBER_BITS
            return str(IPv6Network((int(address) >> shift << shift, _SUBSCRIBER_BITS)))
        return str(address)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise OptionError(
            f"a proxy is an address or a network such as 10.0.0.0/8, not {text!r}"
        ) from error

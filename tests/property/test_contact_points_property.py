"""Contact points: whatever is an address with a port is told apart from an address."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.arguments import address_of
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import HIGHEST_PORT, ConnectionOptions

ADDRESSES = st.one_of(
    st.ip_addresses(v=6).map(str),
    # Most of those have eight groups, and no place for a port.
    st.integers(0, 1 << 40).map(lambda number: str(IPv6Address(number))),
)


def endpoint(point: str) -> tuple[str, int]:
    (found,) = ConnectionOptions(contact_points=(point,)).endpoints
    return found


@given(ADDRESSES, st.integers(1, HIGHEST_PORT))
def test_an_address_that_is_written_with_its_port_is_read_as_both(address: str, port: int):
    assert endpoint(address_of(address, port)) == (address, port)


@given(ADDRESSES, st.integers(1000, HIGHEST_PORT))
def test_an_address_with_its_port_but_without_brackets_is_never_read_as_another(
    address: str, port: int
):
    with pytest.raises(OptionError) as refused:
        endpoint(f"{address}:{port}")

    assert f"write [{address}]:{port}" in str(refused.value)

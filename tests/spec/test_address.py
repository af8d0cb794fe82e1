"""Addresses are read strictly: none means every interface of a machine unless it says so in full."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.spec.address import parsed_address, written_address

GOOD = {
    "10.0.0.1:29700": ("10.0.0.1", 29700),
    "0.0.0.0:1": ("0.0.0.0", 1),  # in full, it is what was asked for
    "localhost:65535": ("localhost", 65535),
    "node-3.cluster_a.example:80": ("node-3.cluster_a.example", 80),
    "[::1]:29700": ("::1", 29700),
    "[fe80::1%eth0]:29700": ("fe80::1%eth0", 29700),
}
BAD = [
    "somewhere",
    ":80",
    "[]:29781",
    "[[[[:1",
    "[]]:1",
    "[",
    "]:1",
    "127.0.0.1:80:80",
    "::1:80",
    "[127.0.0.1]:80",
    "[::1]80",
    "[::1]:",
    "a..b:80",
    ".a:80",
    "-a:80",
    "a-:80",
    "a:",
    "a:0",
    "a:-1",
    "a:+1",
    "a:65536",
    "a:00080x",
    "a:٣٣٣",
    "0:80",
    "0x0:80",
    "0x7f000001:80",
    "127.1:80",
    "1.2.3.256:80",
    "1.2.3.4.5:80",
    "1:2:3",
    "é:80",
    "a/b:80",
    "http://a:80",
    "a@b:80",
    "*:80",
    "a,b:80",
    "[::]x:80",
    "x[::]:80",
]


MANY = ["255.255.255.255:80", "224.0.0.1:80", "[ff02::1]:80"]  # addresses of many machines: nobody listens there


@pytest.mark.parametrize("text", GOOD)
def test_an_address_is_read_and_written_again(text):
    assert parsed_address(text) == GOOD[text]
    assert written_address(*GOOD[text]) == text


@pytest.mark.parametrize(
    "text", ["", " ", "a b:80", "a:80 ", " a:80", "a:80\n", "a\0:80", "a:" + "9" * 5000, "a" * 64 + ":80", *MANY, *BAD]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(HeddleError, match="is not an address") as caught:
        parsed_address(text)
    assert len(caught.value.what) < 120


def test_a_free_port_is_only_for_who_listens():
    assert parsed_address("127.0.0.1:0", any_port=True) == ("127.0.0.1", 0)


@given(st.text("0123456789.x[]:%abf-_ ", max_size=24))
def test_no_text_becomes_every_interface_unless_it_says_so(text):
    try:
        host, port = parsed_address(text)
    except HeddleError:
        return
    assert 0 < port < 65536
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return  # a name
    if found[0][4][0] in ("0.0.0.0", "::"):
        assert set(host) <= set("0.:")
        assert host.count(".") == 3 or ":" in host

"""Heads that are refused, as the function that judges them says; test_protocol.py sends them."""

import pytest

from service.api.request_head import objection_to_head

HOST = (b"host", b"localhost")


def status(*headers: tuple[bytes, bytes], version: str = "1.1", url: bytes = b"/plan") -> int | None:
    refused = objection_to_head(version, url, [HOST, *headers], max_header_bytes=100, max_body_bytes=30)
    return refused and refused[0]


@pytest.mark.parametrize("length", [b"t", b"", b"-5", b"+5", b"1_0", b"5, 5", "٣".encode(), b"9" * 19])
def test_a_length_is_a_number(length: bytes) -> None:
    assert status((b"content-length", length)) == 400


def test_a_body_has_at_most_so_many_bytes() -> None:
    assert status() is None
    assert status((b"content-length", b" 30 ")) is None
    assert status((b"content-length", b"31")) == 413


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        (b"http://localhost/plan", None),
        (b"HTTP://LOCALHOST?x", None),
        (b"http://evil.example/plan", 400),
        (b"http://localhost:81/plan", 400),
        (b"http://user@localhost/plan", 400),
        (b"http://evil.example#/plan", 400),
        (b"/plan?http://evil.example/", None),
        (b"*", None),
    ],
)
def test_a_whole_address_names_the_host_that_the_header_names(url: bytes, refused: int | None) -> None:
    assert status(url=url) == refused


def test_a_whole_address_without_a_host_is_refused() -> None:
    assert objection_to_head("1.0", b"http://evil.example/", [], max_header_bytes=100, max_body_bytes=30) is not None
    assert objection_to_head("1.0", b"/plan", [], max_header_bytes=100, max_body_bytes=30) is None

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

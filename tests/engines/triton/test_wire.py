import os
import time
from dataclasses import replace

import pytest

from service.engines.protocol import GenerationRequest, RequestRefusedError, TraceNode, TraceStep
from service.engines.triton.wire import (
    ProcessName,
    ReplicaInfo,
    decode_info,
    decode_request,
    decode_result,
    encode_info,
    encode_request,
    encode_result,
)
from tests.fake_models import result

REQUEST = GenerationRequest(
    prompt="日本のカメラ 👟 \0 \"'", grammar="start: /[^\\n]+/", max_tokens=7, strategy="autoregressive", trace=True
)


def test_a_request_arrives_as_it_was_sent() -> None:
    assert decode_request(encode_request(REQUEST)) == REQUEST
    assert decode_request(encode_request(None)) is None


def test_the_deadline_travels_as_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = encode_request(replace(REQUEST, deadline=time.monotonic() + 100))
    later = time.monotonic() + 5000  # another host, another clock
    monkeypatch.setattr(time, "monotonic", lambda: later)
    arrived = decode_request(sent)
    assert arrived is not None
    assert arrived.deadline == pytest.approx(later + 100, abs=50)


def test_a_deadline_that_has_passed_stays_in_the_past() -> None:
    arrived = decode_request(encode_request(replace(REQUEST, deadline=time.monotonic() - 1)))
    assert arrived is not None
    assert arrived.deadline is not None
    assert arrived.deadline < time.monotonic()


def test_a_result_arrives_as_it_was_given() -> None:
    node = TraceNode(token_text=" ré", parent=-1, depth=0, status="accepted")
    step = TraceStep(nodes=[node], emitted=[" ré"], milliseconds=0.125)
    sent = replace(result(" find Any", seconds=1 / 3), steps=[step], accepted_per_step=[])
    assert decode_result(encode_result(sent)) == sent


@pytest.mark.parametrize("body", [b"", b"nnnn", b"{}", b'{"prompt": "secret", "grammar": 5}', b"\x80\x04."])
def test_what_is_no_request_is_refused_without_its_words(body: bytes) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        decode_request(body)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"{}", b"null"])
def test_what_is_no_result_is_told(body: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        decode_result(body)


def test_a_hello_names_its_process() -> None:
    own = ProcessName.of(os.getpid())
    assert own is not None
    assert decode_info(encode_info("model", "v1")) == ReplicaInfo("model", "v1", own)
    assert ProcessName.of(2**22 + 1) is None  # no process has so high a number

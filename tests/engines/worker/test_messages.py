import socket
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engines.protocol import GenerationRequest
from service.engines.worker.messages import Cancel, Channel, Decoder, Failure, FrameError, Message, Ready, encode

MESSAGES: list[Message] = [
    Ready("a model"),
    Cancel(),
    Failure("no", refused=True),
    GenerationRequest(prompt=" 👟" * 1000, grammar="start: x", deadline=1.5),
]


@given(cuts=st.lists(st.integers(0, 5000), max_size=20))
def test_messages_come_back_whole_whatever_the_pieces(cuts: list[int]) -> None:
    stream = b"".join(encode(message) for message in MESSAGES)
    decoder = Decoder()
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    got = [message for start, end in pairwise(edges) for message in decoder.feed(stream[start:end])]
    assert got == MESSAGES


def test_channel_reads_in_order_and_notices_the_end() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs)
    with theirs:
        ours.sendall(encode(MESSAGES[0]) + encode(MESSAGES[1]))
        assert channel.receive() == MESSAGES[0]
        assert channel.interrupted()
        assert channel.receive() == MESSAGES[1]
        assert not channel.interrupted()
        ours.close()
        assert channel.interrupted()
        assert channel.receive() is None


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_survives_the_channel(message: Message) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send(message)
        assert Channel(theirs).receive() == message


def test_bytes_that_are_no_message_are_noticed() -> None:
    whole = encode(Failure("reason"))
    flipped = whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
    for data in (flipped, b"\xff" * 64, b"HTTP/1.1 200 OK\r\n\r\n"):
        with pytest.raises(FrameError):
            Decoder().feed(data)

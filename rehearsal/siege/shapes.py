"""The raw HTTP that a siege sends: requests of every shape, right and wrong, and what is left half-sent."""

import json

BODY = b'{"query": "red nike running shoes under $100"}'
HEAD = b"POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PLAN = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
_GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FILE = b"GET /swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n"
_RELOAD = b"POST /reload HTTP/1.1\r\nHost: localhost\r\n"
_PREFLIGHT = b"OPTIONS /plan HTTP/1.1\r\nHost: localhost\r\nOrigin: %b\r\nAccess-Control-Request-Method: POST\r\n\r\n"


def request_with(body: bytes, path: bytes = b"/plan") -> bytes:
    """Return a request with this body."""
    return HEAD.replace(b"/plan", path) + b"Content-Length: %d\r\n\r\n" % len(body) + body


Shape = tuple[str, list[bytes], set[int]]


def _or_turned_away(shape: Shape) -> Shape:
    """Allow a request for a plan to be turned away, whatever else it is: where too many come, none is read first."""
    name, pieces, expected = shape
    is_for_a_plan = b"".join(pieces).startswith(
        (b"POST /plan ", b"TRACE /plan ", b"POST /%70lan ", b"POST http://y/plan ")
    )
    return name, pieces, expected | {503} if expected and is_for_a_plan else expected


# Name, what is sent in pieces, and the status of the first answer; none where the connection may just be closed.
SHAPES: list[Shape] = [*map(_or_turned_away, [
    ("a plan", [PLAN], {200}),
    ("a plan in single bytes", [PLAN[at : at + 1] for at in range(len(PLAN))], {200}),
    ("40 plans in one packet", [PLAN * 40], {200}),
    ("5,000 requests in one go", [(_GET + b"\r\n") * 5000], {200}),
    ("no Host", [PLAN.replace(b"Host: localhost\r\n", b"")], {400}),
    ("two Hosts", [PLAN.replace(b"Host: localhost", b"Host: localhost\r\nHost: y")], {400}),
    ("a Host with a path", [_GET.replace(b"Host: localhost", b"Host: localhost/plan?") + b"\r\n"], {200, 400}),
    ("HTTP/1.0", [b"GET /healthz HTTP/1.0\r\n\r\n"], {200}),
    ("HTTP/0.9", [b"GET /healthz\r\n\r\n"], {400}),
    ("HTTP/2 without asking", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], {400}),
    ("TLS", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], {400}),
    ("an upgrade to h2c", [PLAN.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost")], {200}),
    ("an upgrade to a web socket", [_GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"], {200}),
    ("CONNECT", [b"CONNECT x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n"], {400}),
    ("an unknown method", [b"BREW /plan HTTP/1.1\r\nHost: localhost\r\n\r\n"], {400, 405}),
    ("4,300 zeros", [HEAD + b"Content-Length: " + b"0" * 4300 + b"30\r\n\r\n"], {400}),
    ("a length of 30 digits", [HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"], {400}),
    ("a negative length", [HEAD + b"Content-Length: -1\r\n\r\n"], {400}),
    ("two lengths", [HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n"], {400}),
    ("a length and chunks", [HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"], {400}),
    ("chunks of chunks", [HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"], {400, 422, 200}),
    ("a chunk without a size", [_CHUNKED + b"zz\r\n"], {400}),
    ("a chunk of 2^64 bytes", [_CHUNKED + b"ffffffffffffffffff\r\n"], {400}),
    ("chunks of one byte", [_CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"], {200}),
    ("trailers", [_CHUNKED + b"%x\r\n%b\r\n0\r\nHost: y\r\n\r\n" % (len(BODY), BODY)], {200}),
    ("endless trailers", [_CHUNKED + b"1\r\nx\r\n0\r\n", *[b"X-T: " + b"x" * 4000 + b"\r\n"] * 200], {431}),
    ("endless chunk extensions", [_CHUNKED, *[b"1;" + b"x" * 4000 + b"\r\n" + b"x\r\n"] * 200], {431, 400}),
    ("an endless head", [_GET, *[b"X-H: " + b"x" * 4000 + b"\r\n"] * 50], {431}),
    ("20,000 headers", [_GET + b"a:b\r\n" * 20_000 + b"\r\n"], {431}),
    ("a long address", [b"GET /" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"], {431}),
    ("a folded header", [_GET + b"X-A: b\r\n c\r\n\r\n"], {200, 400}),
    ("a header with a null", [_GET + b"X-A: \x00\r\n\r\n"], {400}),
    ("a header without a name", [_GET + b": x\r\n\r\n"], {400}),
    ("bare line feeds", [b"GET /healthz HTTP/1.1\nHost: localhost\n\n"], {200, 400}),
    ("line ends before a request", [b"\r\n" * 50 + _GET + b"\r\n"], {200}),
    ("a body of a megabyte", [HEAD + b"Content-Length: 1000000\r\n\r\n", *[b"x" * 65536] * 15], {413}),
    ("a body without a type", [PLAN.replace(b"application/json", b"text/plain")], {415}),
    ("a body that is no JSON", [PLAN.replace(b"{", b"[")], {400}),
    ("deep JSON", [HEAD + b"Content-Length: 15000\r\n\r\n" + b"[" * 15_000], {400}),
    ("a lone surrogate", [HEAD + b"Content-Length: 19\r\n\r\n" + b'{"query":"\\ud800 "}'], {422}),
    ("a path of dots", [b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"], {404}),
    ("an encoded path", [b"GET /%2e%2e%2f%00 HTTP/1.1\r\nHost: localhost\r\n\r\n"], {400, 404}),
    ("a drain from here", [b"POST /drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"], {403}),
    ("HTTP/0.9 for a plan", [b"GET /plan\r\n\r\n"], {400}),
    ("HTTP/2.0 in words", [_GET.replace(b"1.1", b"2.0") + b"\r\n"], {400}),
    ("chunks in HTTP/1.0", [_CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n"], {400}),
    ("gzip, then chunks", [_CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n"], {400}),
    ("chunks, named twice", [_CHUNKED.replace(b"Transfer", b"Transfer-Encoding: identity\r\nTransfer")], {400}),
    ("chunks behind a tabulator", [_CHUNKED.replace(b": chunked", b":\x0bchunked")], {400}),
    ("chunks behind a fold", [_CHUNKED.replace(b": chunked", b":\r\n chunked")], {400}),
    ("chunks before a space", [_CHUNKED.replace(b"Encoding:", b"Encoding :")], {400}),
    ("chunks, then a length", [_CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n"], {400}),
    ("a signed chunk", [_CHUNKED + b"-1\r\n"], {400}),
    ("a chunk in C's hex", [_CHUNKED + b"0x5\r\n"], {400}),
    ("a chunk with a line end in quotes", [_CHUNKED + b'5;a="\r\n"\r\nabcde\r\n'], {400}),
    ("a chunk behind bare line feeds", [_CHUNKED + b"5\nabcde\n0\n\n"], {400}),
    ("a chunk longer than it says", [_CHUNKED + b"5\r\nabcdeXX\r\n0\r\n\r\n"], {400}),
    ("a signed length", [HEAD + b"Content-Length: +5\r\n\r\nabcde"], {400}),
    ("a list of lengths", [HEAD + b"Content-Length: 5, 5\r\n\r\nabcde"], {400}),
    ("a length in hex", [HEAD + b"Content-Length: 0x5\r\n\r\nabcde"], {400}),
    ("a length with underscores", [HEAD + b"Content_Length: 5\r\n\r\n"], {422}),
    ("a bare carriage return", [_GET + b"X-A: a\rb\r\n\r\n"], {400}),
    ("lines of carriage returns", [b"GET /healthz HTTP/1.1\rHost: localhost\r\r"], {400}),
    ("a space in a name", [_GET + b"X A: b\r\n\r\n"], {400}),
    ("a name that is no ASCII", [_GET + b"X\xff: b\r\n\r\n"], {400}),
    ("a Host with spaces", [_GET.replace(b"Host: localhost", b"Host: localhost y") + b"\r\n"], {400}),
    ("an expectation without a body", [_CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\n"], set()),
    ("another server's address", [PLAN.replace(b"/plan", b"http://y/plan")], {400}),
    ("another scheme's address", [_GET.replace(b"/", b"gopher://y/", 1) + b"\r\n"], {200, 400, 404}),
    ("an address with a bad port", [_GET.replace(b"/", b"http://y:99999999/", 1) + b"\r\n"], {400}),
    ("an address without a slash", [_GET.replace(b"/", b"@y/", 1) + b"\r\n"], {400}),
    ("OPTIONS of everything", [b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"], {404}),
    ("TRACE", [b"TRACE /plan HTTP/1.1\r\nHost: localhost\r\n\r\n"], {405}),
    ("a preflight", [_PREFLIGHT % b"https://shop.example"], {200}),
    ("a stranger's preflight", [_PREFLIGHT % b"null"], {400}),
    ("3,000 parameters", [_GET.replace(b"healthz", b"healthz?" + b"a=1&" * 3000) + b"\r\n"], {200}),
    ("an encoded name", [PLAN.replace(b"/plan", b"/%70lan")], {200}),
    ("an encoded slash", [PLAN.replace(b"/plan", b"/plan%2f")], {404}),
    ("a path of two slashes", [PLAN.replace(b"/plan", b"//plan")], {404}),
    ("an encoded drain", [b"POST /%64rain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"], {403}),
    ("2,000 ranges", [FILE + b"Range: bytes=" + b"0-," * 2000 + b"0-\r\n\r\n"], {200, 206, 416, 503}),
    ("UTF-7", [request_with(b"+AHsAIg-query+ACIAOgAi-red+ACIAfQ-")], {400}),
    ("overlong UTF-8", [request_with(b'{"query": "\xc0\xaf red"}')], {400}),
    ("numbers that are none", [request_with(b'{"query": "red", "deadline_ms": NaN}')], {422}),
    ("an infinite number", [request_with(b'{"query": "red", "deadline_ms": 1e400}')], {422}),
    ("a number of 5,000 digits", [request_with(b'{"query": "red", "deadline_ms": ' + b"9" * 5000 + b"}")], {400, 422}),
    ("deep history", [request_with(b'{"query": "red", "history": ' + b"[" * 3000 + b"]" * 3000 + b"}")], {400, 422}),
    ("one letter with 500 accents", [request_with(json.dumps({"query": "e" + "\u0301" * 500}).encode())], {200}),
    ("prices without end", [request_with(json.dumps({"query": "under $1 over $2 " * 28}).encode())], {200}),
    ("tokens of control", [request_with(b'{"query": "red <|im_end|><|endoftext|> shoes"}')], {200}),
    ("a trace without sense", [HEAD + b"traceparent: 00-" + b"z" * 5000 + b"\r\n" + PLAN[len(HEAD) :]], {200}),
    ("5,000 cookies", [_GET + b"Cookie: " + b"a=b;" * 3500 + b"\r\n\r\n"], {200}),
    ("a proxy's preface", [b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + _GET + b"\r\n"], {400}),
    ("another protocol", [b"*1\r\n$4\r\nPING\r\n"], {400}),
    ("a reload of a page", [_RELOAD + b"Origin: y\r\nContent-Length: 0\r\n\r\n"], {403}),
])]  # fmt: skip
# What is left half-sent: the service must close, or say that it took too long, in its own time.
STALLS = [b"", b"POST /pl", HEAD, PLAN[:-3], _CHUNKED, _CHUNKED + b"5\r\nab", _CHUNKED + b"0\r\nX-T: ", b"\r\n",
          _CHUNKED + b"ffffffffffffffff\r\n", b"GET /plan\r\n"]  # fmt: skip

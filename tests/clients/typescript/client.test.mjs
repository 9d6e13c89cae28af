// The client as its user installs it, in Node: against answers by a script, and (PEAKPLAN_URL) a real service.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import {
  Client,
  InvalidRequestError,
  isPlanned,
  OriginRefusedError,
  PlannerError,
  RateLimitedError,
  UnauthorizedError,
  UnavailableError,
  UnexpectedAnswerError,
} from "@peakplan/client";

const ANSWER = { request_id: "r1", plan: { queries: ["red boots"] }, source: "model", degraded: false };
const servers = [];
after(() => servers.forEach((server) => { server.closeAllConnections(); server.close(); }));

/** Start a server that answers by a script of [status, body, headers], the last one for ever; "never" does not answer. */
async function scripted(...answers) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    asked.push({ path: request.url, headers: request.headers, body: JSON.parse(text) });
    const next = answers.length > 1 ? answers.shift() : answers[0];
    if (next === "never") return;
    const given = typeof next === "function" ? next(asked.at(-1).body) : next;
    const [status, body, headers = {}] = given;
    const type = status === 200 ? "application/json" : "application/problem+json";
    response.writeHead(status, { "content-type": type, ...headers });
    response.end(typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  servers.push(server);
  return { url: `http://127.0.0.1:${server.address().port}`, asked };
}

function problem(status, more = {}) {
  return { type: "about:blank", title: "T", status, detail: "what", request_id: "r9", ...more };
}

test("a plan, and what is sent for it", async () => {
  const { url, asked } = await scripted([200, ANSWER]);
  const answer = await new Client(`${url}/`, { token: "secret" }).plan("red boots", { history: ["hello"], locale: "en-GB" });
  assert.deepEqual(answer, ANSWER);
  assert.equal(asked[0].path, "/plan");
  assert.equal(asked[0].headers.authorization, "Bearer secret");
  assert.deepEqual(asked[0].body, { query: "red boots", history: ["hello"], locale: "en-GB", deadline_ms: 300 });
});

test("of a long conversation what counts is sent", async () => {
  const { url, asked } = await scripted([200, ANSWER]);
  const history = [...Array(8).keys()].map((number) => `message ${number}`);
  await new Client(url).plan("red boots", { history: [...history, "👟".repeat(600) + "size 9"] });
  assert.deepEqual(asked[0].body.history, [...history.slice(1), "👟".repeat(506) + "size 9"]);
});

test("what passes is tried again, with the time that is left", async () => {
  const { url, asked } = await scripted([503, problem(503)], [500, "no JSON"], [200, ANSWER]);
  assert.deepEqual(await new Client(url, { deadlineMs: 2000, timeoutMs: 30_000 }).plan("red boots"), ANSWER);
  assert.equal(asked.length, 3);
});

test("another endpoint is asked first, and the one that failed last for a while", async () => {
  const first = await scripted([503, problem(503)]);
  const second = await scripted([200, ANSWER]);
  const client = new Client([first.url, second.url], { timeoutMs: 30_000 });
  await client.plan("red boots");
  await client.plan("red boots");
  assert.deepEqual([first.asked.length, second.asked.length], [1, 2]);
});

test("nobody there, or too slow: one error, once the time is up", async () => {
  const slow = await scripted("never");
  for (const url of [slow.url, "http://127.0.0.1:9"]) {
    const call = new Client(url, { deadlineMs: 20, timeoutMs: 300 }).plan("red boots");
    await assert.rejects(call, (error) => error instanceof UnavailableError && /reached|slow/.test(error.message));
  }
});

test("errors have the service's own account", async () => {
  const wrong = await scripted([422, problem(422, { errors: [{ field: "query", detail: "query is required." }] })]);
  await assert.rejects(new Client(wrong.url).plan(""), (error) => {
    assert.ok(error instanceof InvalidRequestError && error instanceof PlannerError);
    assert.deepEqual([error.name, error.status, error.requestId], ["InvalidRequestError", 422, "r9"]);
    assert.equal(error.fields[0].field, "query");
    return true;
  });
  assert.equal(wrong.asked.length, 1);
  const kinds = [
    [[401, problem(401)], UnauthorizedError],
    [[429, problem(429), { "retry-after": "30" }], RateLimitedError],
    [[404, "<html>", { "content-type": "text/html" }], UnexpectedAnswerError],
    [[200, "<html>"], UnexpectedAnswerError],
    [[200, { ok: true }], UnexpectedAnswerError],
  ];
  for (const [answer, kind] of kinds) {
    const { url, asked } = await scripted(answer);
    await assert.rejects(new Client(url).plan("red boots"), kind);
    assert.equal(asked.length, 1);
  }
});

test("a redirect is not followed", async () => {
  const elsewhere = await scripted([200, ANSWER]);
  const { url, asked } = await scripted([307, "", { location: `${elsewhere.url}/plan` }]);
  await assert.rejects(new Client(url, { timeoutMs: 60_000 }).plan("red boots"), UnexpectedAnswerError);
  assert.deepEqual([asked.length, elsewhere.asked.length], [1, 0]);
});

test("an answer has its bytes at most, also once it is decompressed", async () => {
  const folded = { "content-encoding": "gzip" };
  const fair = JSON.stringify(ANSWER);
  const padded = (bytes) => gzipSync(fair + " ".repeat(bytes - fair.length));
  const exact = await scripted([200, padded(1 << 20), folded]);
  assert.deepEqual(await new Client(exact.url, { timeoutMs: 60_000, deadlineMs: 2000 }).plan("red boots"), ANSWER);
  for (const answer of [[200, padded((1 << 20) + 1), folded], [422, padded(64 << 20), folded], [200, "x".repeat(2 << 20)]]) {
    const full = await scripted(answer);
    const second = await scripted([200, ANSWER]);
    const client = new Client([full.url, second.url], { timeoutMs: 60_000, deadlineMs: 2000 });
    assert.deepEqual(await client.plan("red boots"), ANSWER);
    assert.deepEqual([full.asked.length, second.asked.length], [1, 1]);
    await client.plan("red boots"); // who answers so is asked last for a while
    assert.deepEqual([full.asked.length, second.asked.length], [1, 2]);
  }
});

test("what is more than an answer is not read to its end", async () => {
  for (const status of [200, 400]) {
    const seen = { read: 0, isCancelled: false };
    const endless = new ReadableStream({
      pull: (controller) => { controller.enqueue(new Uint8Array(1 << 16)); seen.read += 1; },
      cancel: () => { seen.isCancelled = true; },
    });
    const answers = [new Response(endless, { status }), new Response(JSON.stringify(ANSWER))];
    const client = new Client("http://planner", { timeoutMs: 60_000, deadlineMs: 2000, fetch: async () => answers.shift() });
    assert.deepEqual(await client.plan("red boots"), ANSWER);
    assert.ok(seen.isCancelled && seen.read <= 20, `${seen.read} pieces`);
  }
});

test("a page whose origin is refused is told so at once, and one without a service is not", async () => {
  globalThis.location = { origin: "http://shop.example" };
  try {
    for (const isThere of [true, false]) {
      const asked = [];
      const fetch = async (url, options) => {
        asked.push(url);
        if (options.mode === "no-cors" && isThere) return new Response(null);
        throw new TypeError("Failed to fetch");
      };
      const call = new Client("http://planner", { timeoutMs: 300, deadlineMs: 100, fetch }).plan("red boots");
      const error = await call.then(() => assert.fail(), (thrown) => thrown);
      assert.equal(error instanceof OriginRefusedError, isThere, String(error));
      if (!isThere) continue;
      assert.match(error.message, /shop\.example may be refused by the service's allowed origins.*PEAKPLAN_CORS_ORIGINS/);
      assert.deepEqual(asked, ["http://planner/plan", "http://planner/healthz"]);
    }
  } finally {
    delete globalThis.location;
  }
});

test("a call ends with its signal", async () => {
  const { url } = await scripted("never");
  const controller = new AbortController();
  const call = new Client(url, { timeoutMs: 60_000, deadlineMs: 2000 }).plan("red boots", { signal: controller.signal });
  controller.abort(new Error("gone"));
  await assert.rejects(call, /gone/);
});

test("what is no endpoint is refused", () => {
  for (const endpoints of ["", "localhost:8080", [], ["ftp://x"]]) assert.throws(() => new Client(endpoints), TypeError);
});

test("a batch: each has its own, and what there was no room for is sent again alone", async () => {
  const answers = (body, room) => ({
    answers: body.requests.map((each, number) =>
      each.query === "wrong" ? { problem: problem(422) } : number < room ? { answer: ANSWER } : { problem: problem(429) },
    ),
  });
  const { url, asked } = await scripted((body) => [200, answers(body, 2)], (body) => [200, answers(body, 9)]);
  const found = await new Client(url).plans(["a", { query: "b", history: ["c"] }, "wrong", "d"]);
  assert.deepEqual(found.map(isPlanned), [true, true, false, true]);
  assert.ok(found[2] instanceof InvalidRequestError);
  assert.deepEqual(asked.map((each) => each.body.requests.map((one) => one.query)), [["a", "b", "wrong", "d"], ["d"]]);
});

test("any number goes in batches that the service takes", async () => {
  const { url, asked } = await scripted((body) => [200, { answers: body.requests.map(() => ({ answer: ANSWER })) }]);
  const found = await new Client(url).plans([...Array(70).keys()].map((number) => `${number} `.repeat(170)));
  assert.equal(found.length, 70);
  assert.ok(asked.length > 2 && asked.every((each) => JSON.stringify(each.body).length <= 16 * 1024));
});

const WISH = { kind: "price", says: "up to 80 USD" };
const PRODUCT = { id: "p", name: "Red Boots", price: 60, category: "footwear", snippet: "Fine.", met: [WISH], unmet: [], unknown: [] };
const EVENTS = [
  ["plan", ANSWER],
  ["options", { options: [PRODUCT, PRODUCT, PRODUCT], milliseconds: 41.5 }],
  ["of_tomorrow", { x: 1 }],
  ["more", { options: [PRODUCT] }],
  ["done", { plan_ms: 40, first_ms: 41.5, total_ms: 43 }],
];
const STREAM = { "content-type": "text/event-stream; charset=utf-8" };
const NAMES = ["plan", "options", "more", "done"];

function sent(events = EVENTS, end = "\n") {
  return events.map(([name, data]) => `event: ${name}${end}data: ${JSON.stringify(data)}${end}${end}`).join("");
}

/** Start a server that writes these pieces, each once what it wrote before has gone; "stay" keeps the connection open. */
async function streaming(...bodies) {
  const seen = { asked: [], left: 0 };
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    seen.asked.push({ path: request.url, headers: request.headers, body: JSON.parse(text) });
    response.on("close", () => { if (!response.writableFinished) seen.left += 1; });
    response.writeHead(200, STREAM);
    response.flushHeaders();
    const pieces = bodies.length > 1 ? bodies.shift() : bodies[0];
    for (const piece of pieces.filter((each) => each !== "stay" && each !== "break")) {
      await new Promise((resolve) => response.write(piece, resolve));
    }
    if (pieces.includes("break")) response.destroy();
    else if (!pieces.includes("stay")) response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  servers.push(server);
  return { url: `http://127.0.0.1:${server.address().port}`, seen };
}

async function collect(answer) {
  const events = [];
  for await (const event of answer) events.push(event);
  return events;
}

test("an answer's events are typed however their bytes come", async () => {
  const text = sent();
  const bytes = [...new TextEncoder().encode(text)].map((byte) => Buffer.from([byte]));
  for (const pieces of [[text], bytes, [sent(EVENTS, "\r\n")], [`: a comment\n\n${text}`]]) {
    const { url, seen } = await streaming(pieces);
    const options = { history: ["boots"], deadlineMs: 250, timeoutMs: 30_000 };
    const events = await collect(new Client(url, { token: "secret" }).answer("red boots", options));
    assert.deepEqual(events.map((each) => each.event), NAMES);
    assert.deepEqual(events[0].data, ANSWER);
    assert.deepEqual(events[1].data.options[0].met, [WISH]);
    assert.deepEqual([events[1].data.reason, events[1].data.milliseconds], [null, 41.5]); // what is left out has its default
    assert.equal(events[3].data.total_ms, 43);
    assert.equal(seen.asked[0].path, "/answer");
    assert.deepEqual(seen.asked[0].body, { query: "red boots", history: ["boots"], deadline_ms: 250 });
    assert.match(seen.asked[0].headers.accept, /^text\/event-stream/);
    assert.equal(seen.asked[0].headers.authorization, "Bearer secret");
  }
});

test("an event is there before the next one is sent", async () => {
  const { url } = await streaming([sent(EVENTS.slice(0, 1)), "stay"]);
  const answer = new Client(url).answer("red boots", { timeoutMs: 60_000, deadlineMs: 2000 });
  assert.equal((await answer.next()).value.event, "plan");
  await answer.return();
});

test("attempts are made until the first event is there", async () => {
  const options = { timeoutMs: 60_000, deadlineMs: 2000 };
  const refused = await scripted([503, problem(503)]);
  const second = await streaming([sent()]);
  assert.equal((await collect(new Client([refused.url, second.url]).answer("red boots", options))).length, 4);
  for (const nothing of [[], ["event: plan\n"], ["break"]]) {
    const { url, seen } = await streaming(nothing, [sent()]);
    assert.equal((await collect(new Client(url).answer("red boots", options))).length, 4);
    assert.equal(seen.asked.length, 2);
  }
  const silent = await streaming(["stay"], [sent()]);
  assert.equal((await collect(new Client(silent.url).answer("red boots", { ...options, deadlineMs: 20 }))).length, 4);
});

test("nothing is asked again once there is an event", async () => {
  for (const broken of [[sent(EVENTS.slice(0, 2))], [sent(EVENTS.slice(0, 2)), "break"]]) {
    const { url, seen } = await streaming(broken);
    const events = [];
    const reading = (async () => {
      for await (const event of new Client(url).answer("red boots", { timeoutMs: 60_000, deadlineMs: 2000 })) {
        events.push(event.event);
      }
    })();
    await assert.rejects(reading, (error) => error instanceof UnavailableError && /broke off/.test(error.message));
    assert.ok(events.length >= 1 && events[0] === "plan");
    assert.equal(seen.asked.length, 1);
  }
});

test("an answer that does not end has its time", async () => {
  const { url, seen } = await streaming([sent(EVENTS.slice(0, 1)), "stay"]);
  const reading = collect(new Client(url).answer("red boots", { timeoutMs: 500 }));
  await assert.rejects(reading, (error) => error instanceof UnavailableError && /reached|slow|in time/.test(error.message));
  while (seen.left < seen.asked.length) await new Promise((resolve) => setTimeout(resolve, 5));
});

test("what is no answer says so, once", async () => {
  const refused = [
    [[200, ANSWER], /no text\/event-stream/],
    [[200, sent([["plan", { no: "plan" }]]), STREAM], /"plan" is none/],
    [[200, "event: options\ndata: <html>\n\n", STREAM], /"options" is none/],
    [[200, "x".repeat(1_100_000), STREAM], /more than 1048576/],
  ];
  for (const [answer, words] of refused) {
    const { url, asked } = await scripted(answer);
    const reading = collect(new Client(url).answer("red boots", { timeoutMs: 60_000, deadlineMs: 2000 }));
    await assert.rejects(reading, (error) => error instanceof UnexpectedAnswerError && words.test(error.message));
    assert.equal(asked.length, 1);
  }
  const wrong = await scripted([422, problem(422)]);
  await assert.rejects(collect(new Client(wrong.url).answer("")), InvalidRequestError);
});

test("who leaves the loop, or aborts, ends the request", async () => {
  const options = { timeoutMs: 60_000, deadlineMs: 2000 };
  const { url, seen } = await streaming([sent(EVENTS.slice(0, 1)), "stay"]);
  for await (const event of new Client(url).answer("red boots", options)) if (event.event === "plan") break;
  while (seen.left < 1) await new Promise((resolve) => setTimeout(resolve, 5));
  const controller = new AbortController();
  const answer = new Client(url).answer("red boots", { ...options, signal: controller.signal });
  await answer.next();
  controller.abort(new Error("gone"));
  await assert.rejects(answer.next(), /gone/);
  while (seen.left < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  await assert.rejects(collect(new Client(url).answer("red boots", { signal: controller.signal })), /gone/);
  assert.equal(seen.asked.length, 2);
});

test("a real service answers", { skip: !process.env.PEAKPLAN_URL && "PEAKPLAN_URL names none" }, async () => {
  const client = new Client(process.env.PEAKPLAN_URL, { deadlineMs: 2000, timeoutMs: 60_000 });
  const answer = await client.plan("red leather boots under $80", { history: [...Array(12).keys()].map(String) });
  assert.equal(answer.plan.price.max, 80);
  const found = await client.plans(["red leather boots under $80", " "]);
  assert.ok(isPlanned(found[0]) && found[0].plan.price.max === 80);
  assert.ok(found[1] instanceof InvalidRequestError);
  const events = await collect(client.answer("red leather boots under $80"));
  const names = events.map((each) => each.event);
  assert.deepEqual([names[0], names[1], names.at(-1)], ["plan", "options", "done"]);
  assert.equal(events[0].data.plan.price.max, 80);
  assert.ok(events[1].data.reason !== null || events[1].data.options.every((each) => each.price <= 80));
});

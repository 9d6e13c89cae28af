// Events as a shop's page has them: none lost or twice.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Client, EventSender } from "@peakplan/client";

const CLICK = { action_name: "click", query_id: "48bf" };

/** Answer by a script of statuses, then 202; 0 is nobody there. `got` are the events that were taken. */
function service(...statuses) {
  const got = [];
  const asked = [];
  const answer = async (url, { body, headers, keepalive }) => {
    const events = JSON.parse(body);
    const status = statuses.length ? statuses.shift() : 202;
    asked.push({ url, headers, keepalive, events: events.length, ids: events.map((each) => each.event_id) });
    if (status === 0) throw new TypeError("nobody there");
    if (status === 202) got.push(...events);
    return new Response(JSON.stringify({ refused: [] }), { status });
  };
  return { got, asked, fetch: answer };
}

test("events arrive once they can, with the ids that they had before", async () => {
  const { got, asked, fetch } = service(0, 503, 429);
  const sender = new EventSender("http://service/", { token: "secret", fetch });
  for (let number = 0; number < 100; number++) assert.ok(sender.put({ ...CLICK, query_id: String(number) }));
  await sender.close(60_000);
  assert.deepEqual(got.map((each) => each.query_id), [...Array(100).keys()].map(String));
  assert.equal(new Set(got.map((each) => each.event_id)).size, 100);
  assert.deepEqual([sender.sent, sender.dropped, sender.refused], [100, 0, 0]);
  assert.deepEqual(asked[0].ids, asked[3].ids);
  assert.ok(asked.every((each) => each.url === "http://service/outcomes" && each.keepalive && each.events <= 64));
  assert.equal(asked[0].headers.authorization, "Bearer secret");
});

test("what the service never takes is counted, and what is too long goes in halves", async () => {
  const { got, asked, fetch } = service(422, 413);
  const sender = new EventSender(["http://service"], { fetch });
  for (let number = 0; number < 128; number++) sender.put(CLICK);
  await sender.close(60_000);
  assert.deepEqual(asked.map((each) => each.events), [64, 64, 32, 32]);
  assert.deepEqual([sender.sent, sender.dropped, sender.refused, got.length], [64, 0, 64, 64]);
});

test("events do not follow a redirect", async () => {
  let elsewhere = 0;
  const server = createServer((request, answer) => {
    if (request.url === "/outcomes") answer.writeHead(307, { location: "/elsewhere" }).end();
    else answer.writeHead(202).end(JSON.stringify({ refused: [] }), () => elsewhere++);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const sender = new EventSender(`http://127.0.0.1:${server.address().port}`);
  sender.put(CLICK);
  await sender.close(200);
  server.close();
  assert.deepEqual([sender.sent, sender.dropped, elsewhere], [0, 1, 0]);
});

test("what finds no room or no time is counted, and nobody waits", async () => {
  const { fetch } = service(...Array(1000).fill(503));
  const sender = new EventSender("http://service", { mostWaiting: 10, fetch });
  const taken = [...Array(30)].map(() => sender.put(CLICK));
  assert.equal(taken.filter(Boolean).length, 10);
  await sender.close(0);
  assert.deepEqual([sender.sent, sender.dropped], [0, 30]);
  assert.equal(sender.put(CLICK), false, "after the end");
  for (const none of [[], "localhost:8080"]) assert.throws(() => new EventSender(none), TypeError);
});

const FOR_EVER = 2 ** 30;

/** Return the sizes of the first so many requests, and the sender that lingers for ever. */
function lingering(requests) {
  const { got, asked, fetch } = service();
  let done;
  const arrived = new Promise((resolve) => (done = resolve));
  const counted = async (...given) => {
    const answer = await fetch(...given);
    if (asked.length === requests) done();
    return answer;
  };
  return { got, asked, arrived, sender: new EventSender("http://service", { lingerMs: FOR_EVER, fetch: counted }) };
}

test("a full request lingers for nobody, and the end sends the rest in order", async () => {
  const { got, asked, arrived, sender } = lingering(1);
  for (let number = 0; number < 66; number++) {
    sender.put({ ...CLICK, query_id: String(number) });
    await Promise.resolve(); // they come one after another
  }
  await arrived;
  assert.deepEqual(asked.map((each) => each.events), [64]);
  await sender.close(60_000);
  assert.deepEqual(asked.map((each) => each.events), [64, 2]);
  assert.deepEqual(got.map((each) => each.query_id), [...Array(66).keys()].map(String));
});

test("long events fill a request by their bytes", async () => {
  const { got, asked, arrived, sender } = lingering(3);
  for (let number = 0; number < 40; number++) sender.put({ ...CLICK, query_id: String(number), message: "ä".repeat(600) });
  await arrived;
  assert.deepEqual(asked.map((each) => each.events), [12, 12, 12]);
  await sender.close(60_000);
  assert.deepEqual(got.map((each) => each.query_id), [...Array(40).keys()].map(String));
});

test("events linger for others no longer than they are told to", async () => {
  const { asked, fetch } = service();
  let told;
  const sent = new Promise((resolve) => (told = resolve));
  const sender = new EventSender("http://service", { lingerMs: 5, fetch: (...given) => fetch(...given).finally(told) });
  sender.put(CLICK);
  sender.put(CLICK);
  await sent; // nobody closes it
  assert.deepEqual(asked.map((each) => each.events), [2]);
  await sender.close(60_000);
});

test("what is no JSON is refused, and the sender goes on", async () => {
  const { got, fetch } = service();
  const sender = new EventSender("http://service", { fetch });
  assert.equal(sender.put({ ...CLICK, message: 1n }), false);
  assert.ok(sender.put(CLICK));
  await sender.close(60_000);
  assert.deepEqual([sender.sent, sender.refused, got.length], [1, 1, 1]);
});

test("a page that is hidden or left sends what lingers at once", async (context) => {
  const page = new EventTarget();
  globalThis.document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  globalThis.addEventListener = page.addEventListener.bind(page);
  globalThis.removeEventListener = page.removeEventListener.bind(page);
  context.after(() => ["document", "addEventListener", "removeEventListener"].forEach((name) => delete globalThis[name]));
  const { got, asked, sender } = lingering(9);
  for (let number = 0; number < 3; number++) sender.put({ ...CLICK, query_id: String(number) });
  await new Promise((resolve) => setTimeout(resolve));
  document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(asked.length, 0, "it is still visible");
  document.visibilityState = "hidden";
  document.dispatchEvent(new Event("visibilitychange"));
  assert.deepEqual(asked.map((each) => each.events), [3], "before the handler returned");
  for (let number = 3; number < 30; number++) sender.put({ ...CLICK, query_id: String(number), message: "x".repeat(1000) });
  page.dispatchEvent(new Event("pagehide"));
  assert.ok(asked.length >= 3, "side by side");
  await sender.close(60_000);
  assert.deepEqual(got.map((each) => each.query_id), [...Array(30).keys()].map(String));
  assert.deepEqual([sender.sent, sender.dropped], [30, 0]);
});

test("a real service keeps them", { skip: !process.env.PEAKPLAN_KEEPS_EVENTS && "PEAKPLAN_KEEPS_EVENTS names none" }, async () => {
  const { request_id } = await new Client(process.env.PEAKPLAN_KEEPS_EVENTS, { deadlineMs: 2000, timeoutMs: 60_000 }).plan("boots");
  const sender = new EventSender(process.env.PEAKPLAN_KEEPS_EVENTS);
  sender.put({ ...CLICK, query_id: request_id, event_attributes: { object: { object_id: "B07" }, position: { ordinal: 1 } } });
  await sender.close(60_000);
  assert.deepEqual([sender.sent, sender.refused, sender.dropped], [1, 0, 0]);
});

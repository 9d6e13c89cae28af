// Events as a shop's page has them: none lost or twice.
import assert from "node:assert/strict";
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
  assert.ok(asked.every((each) => each.url === "http://service/outcomes" && each.keepalive && each.events <= 32));
  assert.equal(asked[0].headers.authorization, "Bearer secret");
});

test("what the service never takes is counted, and what is too long goes in halves", async () => {
  const { got, asked, fetch } = service(422, 413);
  const sender = new EventSender(["http://service"], { fetch });
  for (let number = 0; number < 64; number++) sender.put(CLICK);
  await sender.close(60_000);
  assert.deepEqual(asked.map((each) => each.events), [32, 32, 16, 16]);
  assert.deepEqual([sender.sent, sender.dropped, sender.refused, got.length], [32, 0, 32, 32]);
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

test("a real service keeps them", { skip: !process.env.PEAKPLAN_KEEPS_EVENTS && "PEAKPLAN_KEEPS_EVENTS names none" }, async () => {
  const { request_id } = await new Client(process.env.PEAKPLAN_KEEPS_EVENTS, { deadlineMs: 2000, timeoutMs: 60_000 }).plan("boots");
  const sender = new EventSender(process.env.PEAKPLAN_KEEPS_EVENTS);
  sender.put({ ...CLICK, query_id: request_id, event_attributes: { object: { object_id: "B07" }, position: { ordinal: 1 } } });
  await sender.close(60_000);
  assert.deepEqual([sender.sent, sender.refused, sender.dropped], [1, 0, 0]);
});

// Experiments as a shop's page has them: the same arms and lists as in Python, and a shopper's plans from the arm's hosts.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { assigned, bucket, Client, credit, interleave, isUnit, Trial } from "@peakplan/client";

const cases = JSON.parse(await readFile(new URL("experiment-vectors.json", import.meta.url)));
const ARMS = [["control", 50], ["newer", 50]];

/** Answer plans for every host but those that are down; `asked` are the hosts, and who the shopper was said to be. */
function hosts(...down) {
  const asked = [];
  const fetch = async (url, { headers }) => {
    const { hostname, pathname } = new URL(url);
    asked.push([hostname, headers["x-experiment-unit"], pathname]);
    if (down.includes(hostname)) throw new TypeError("nobody there");
    const answer = { request_id: "r", plan: { queries: [] }, source: "rules", degraded: false };
    return new Response(JSON.stringify(answer), { status: 200 });
  };
  return { asked, fetch };
}

async function shopperOf(trial, arm) {
  for (let number = 0; ; number++) if ((await trial.arm(`b${number}`)) === arm) return `b${number}`;
}

test("buckets, arms and drafts are Python's", async () => {
  assert.ok(cases.length >= 40);
  for (const { shopper, experiment, arms, a, b, length, ...expected } of cases) {
    assert.equal(isUnit(shopper), expected.header);
    assert.equal(await bucket(experiment, shopper), expected.bucket);
    assert.equal(await assigned(experiment, arms, shopper), expected.arm);
    assert.equal(await new Trial(experiment, arms).arm(shopper), expected.arm);
    const drafted = await interleave(a, b, { length, seed: shopper });
    assert.deepEqual([drafted.products, drafted.teams], [expected.products, expected.teams]);
    assert.equal(credit(drafted, expected.chosen), expected.credit);
  }
  await assert.rejects(assigned("autumn", [["control", 0]], "x"), RangeError);
});

test("the service's experiment is told who the shopper is, where a header can say it", async () => {
  const { asked, fetch } = hosts();
  const client = new Client("http://usual", { fetch, trial: new Trial("autumn", [["newer", 1]], { newer: "http://newer" }) });
  for (const shopper of ["browser-1", undefined, "", "ü👟", "two words", "x".repeat(101)]) await client.plan("red boots", { shopper });
  assert.deepEqual(asked, [["newer", "browser-1", "/plan"], ...Array(5).fill(["usual", undefined, "/plan"])]);
});

test("a shopper is asked for at the hosts of their arm, and elsewhere where these fail", async () => {
  const trial = new Trial("autumn", ARMS, { newer: ["http://newer-1/", "http://newer-2"] });
  const [ours, theirs] = [await shopperOf(trial, "newer"), await shopperOf(trial, "control")];
  const { asked, fetch } = hosts("newer-1");
  const client = new Client("http://usual", { fetch, trial, timeoutMs: 60_000 });
  for (const shopper of [ours, theirs, ours]) await client.plan("red boots", { shopper });
  assert.deepEqual(asked.map(([host]) => host), ["newer-1", "newer-2", "usual", "newer-2"], "what failed is asked last");
  const all = hosts("newer-1", "newer-2");
  await new Client("http://usual", { fetch: all.fetch, trial, timeoutMs: 60_000 }).plan("red boots", { shopper: ours });
  assert.deepEqual(all.asked.map(([host]) => host), ["newer-1", "newer-2", "usual"], "a plan matters more than an arm");
});

test("answers go to the arm's hosts, too, and batches to the usual ones", async () => {
  const trial = new Trial("autumn", [["newer", 1]], { newer: "http://newer" });
  const { asked, fetch } = hosts();
  const client = new Client("http://usual", { fetch, trial, timeoutMs: 1000 });
  await assert.rejects(client.answer("red boots", { shopper: "browser-1" }).next());
  await assert.rejects(client.plans(["red boots"]));
  const first = (path) => asked.find(([, , asked]) => asked === path)[0];
  assert.deepEqual([first("/answer"), first("/plans")], ["newer", "usual"]);
});

test("a trial that cannot be is refused", () => {
  assert.throws(() => new Trial("autumn", ARMS, { other: "http://x" }), /no share is given for other/);
  assert.throws(() => new Trial("autumn", [["control", 0]]), RangeError);
  assert.throws(() => new Client("http://x", { trial: new Trial("autumn", ARMS, { newer: "x" }) }), TypeError);
});

test("a real service puts shoppers into the same arms", { skip: !process.env.PEAKPLAN_KEEPS_EVENTS && "no service" }, async () => {
  const trial = new Trial("autumn", [["control", 50], ["2", 30], ["rules", 20]]);
  const client = new Client(process.env.PEAKPLAN_KEEPS_EVENTS, { deadlineMs: 2000, timeoutMs: 60_000, trial });
  for (const [arm] of trial.arms) {
    const { source } = await client.plan(`boots for ${arm}`, { shopper: await shopperOf(trial, arm) });
    assert.equal(source === "rules", arm === "rules");
  }
});

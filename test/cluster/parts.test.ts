// The parts of a cluster that need no NATS: what is sent comes back the same, prompts that begin alike are recognised, and requests go where
// docs/use/cluster.md says.

import { describe, expect, test } from "vitest";
import { readBeat, readFacts } from "../../apps/cluster/checked.ts";
import { clusterServers } from "../../apps/cluster/connect.ts";
import {
  blockHashes,
  HeldPrefixes,
  heldBlocks,
  readHeld,
} from "../../apps/cluster/fingerprints.ts";
import { type Beat, type CallMessage, subjects } from "../../apps/cluster/messages.ts";
import { type NatsConnection, reconnectDelay } from "../../apps/cluster/peer.ts";
import { chooseWorker, type WorkerView } from "../../apps/cluster/router.ts";
import { decode, encode } from "../../apps/cluster/wire.ts";
import { Workers } from "../../apps/cluster/workers.ts";
import { errorToFacts, factsToError } from "../../src/base/error-facts.ts";
import {
  DeviceLostError,
  HangError,
  RestartingError,
  UsageError,
  WorkerError,
} from "../../src/base/errors.ts";
import { fakeInfo } from "./fake-info.ts";

describe("wire", () => {
  const values: readonly unknown[] = [
    { a: [1, "ä\u0000", null, true, -0.5], b: {} },
    { bias: new Map([[5, Number.NEGATIVE_INFINITY]]), list: [Number.NaN, Infinity, undefined] },
    { bytes: Uint8Array.of(0, 255), vector: Float32Array.of(1.5, -0), ids: Int32Array.of(-1, 7) },
    { regex: /a+\n/giu, large: new Uint8Array(100_000).fill(7) },
    undefined,
  ];
  test.each(values.map((value, at) => [at, value]))("value %i", (_, value) => {
    expect(decode(encode(value))).toEqual(value);
  });

  test("what cannot be sent is refused, and bytes of others are, too", () => {
    expect(() => encode({ call: () => 1 })).toThrow(/a function cannot be sent/);
    expect(() => encode({ $lantern: 1 })).toThrow(/\$lantern/);
    for (const text of ["", "{", '{"$lantern":"x"}', '{"$lantern":"floats","data":"AAA="}']) {
      expect(() => decode(new TextEncoder().encode(text)), text).toThrow(/not one of Lantern's/);
    }
    expect(Object.getPrototypeOf(decode(encode(JSON.parse('{"__proto__": 1}'))))).toBe(
      Object.prototype,
    );
  });
});

describe("fingerprints", () => {
  const tokens = (length: number, from = 0) => Array.from({ length }, (_, i) => from + i);

  test("count the blocks that two prompts have in common, from the first on", () => {
    const held = new HeldPrefixes(4096);
    held.add(tokens(200));
    const known = readHeld(String(held));
    expect(heldBlocks(blockHashes(tokens(200)), known)).toBe(6);
    expect(heldBlocks(blockHashes([...tokens(70), ...tokens(130, 9)]), known)).toBe(2);
    expect(heldBlocks(blockHashes([1, ...tokens(199, 1)]), known)).toBe(0);
    expect(heldBlocks(blockHashes(tokens(31)), known)).toBe(0);
  });

  test("are no more than the cache holds; the beginning of the newest prompts stays", () => {
    const held = new HeldPrefixes(128);
    held.add(tokens(128));
    held.add(tokens(64, 5));
    const known = readHeld(String(held));
    expect(known.size).toBe(4);
    expect(heldBlocks(blockHashes(tokens(64, 5)), known)).toBe(2);
    expect(heldBlocks(blockHashes(tokens(128)), known)).toBe(2);
  });
});

describe("router", () => {
  const worker = (id: string, more: Partial<WorkerView> = {}): WorkerView => ({
    ...{ id, capacity: 4, load: 0, tokensPerSecond: 10, held: new Set<number>() },
    ...more,
  });
  const hashes = [1, 2, 3];
  const chosen = (...workers: WorkerView[]) => chooseWorker(workers, hashes)?.id;

  test("the longest prefix, else the least load, else the fastest", () => {
    const [some, more] = [new Set([1]), new Set([1, 2])];
    expect(chosen()).toBeUndefined();
    expect(chosen(worker("a", { held: some }), worker("b", { held: more, load: 3 }))).toBe("b");
    expect(chosen(worker("a", { load: 2 }), worker("b", { load: 1 }))).toBe("b");
    expect(chosen(worker("a", { load: 2 }), worker("b", { load: 3, capacity: 8 }))).toBe("b");
    expect(chosen(worker("a"), worker("b", { tokensPerSecond: 11 }))).toBe("b");
    // A hash in the middle is no prefix.
    expect(chosen(worker("a", { load: 1, held: new Set([2, 3]) }), worker("b"))).toBe("b");
  });

  test("a worker without a free place gets nothing while another has one", () => {
    const full = worker("a", { load: 4, held: new Set(hashes) });
    expect(chosen(full, worker("b", { load: 3 }))).toBe("b");
    expect(chosen(full, worker("b", { load: 5 }))).toBe("a");
    expect(chosen(worker("a", { load: 6, held: new Set(hashes) }), worker("b", { load: 5 }))).toBe(
      "b",
    );
  });
});

test("nobody speaks for another worker: what counts is the subject, which NATS lets only its owner write to", async () => {
  const listening = new Map<string, (error: null, message: object) => void>();
  const calls: CallMessage[] = [];
  const connection = {
    subscribe(subject: string, { callback }: { callback: (error: null, message: object) => void }) {
      listening.set(subject, callback);
      return { unsubscribe: () => {} };
    },
    request: async () => ({ data: encode({ info: fakeInfo, version: "test" }) }),
    publish: (_: string, data: Uint8Array) => calls.push(decode(data) as CallMessage),
    isClosed: () => false,
  } as unknown as NatsConnection;
  const workers = new Workers(connection);
  const say = (to: string, subject: string, value: unknown): void =>
    listening.get(to)!(null, { subject, data: encode(value) });
  const beat = (worker: string, at: string): void => {
    const facts = {
      model: "m",
      fingerprint: "a".repeat(32),
      calls: {},
      lines: 0,
      capacity: 1,
      held: "",
      isLeaving: false,
    };
    const whole: Beat = { worker, ...facts, tokensPerSecond: 0, promptPerSecond: 0 };
    say(subjects.beats, subjects.beat(at), whole);
  };
  const ids = (): string[] => workers.list().map(({ id }) => id);
  beat("b", "a");
  beat("tabs.a", "tabs.a");
  await expect.poll(ids).toEqual(["tabs.a"]);
  const answer = workers.call("tabs.a", "countTokens", ["x"]);
  const from = (worker: string, result: number): void =>
    say(subjects.answers(workers.gateway), subjects.answer(workers.gateway, worker), [
      [calls[0]!.id, 0, { result }],
    ]);
  from("tabs.b", 1);
  from("tabs.a", 2);
  expect(await answer).toBe(2);
  workers.close();
});

describe("what a worker says of itself", () => {
  const beat: Beat = {
    ...{
      worker: "tabs.a",
      model: "m",
      fingerprint: "0".repeat(32),
      calls: { g: 2 },
      lines: 0,
      capacity: 4,
      held: "",
    },
    ...{ tokensPerSecond: 1.5, promptPerSecond: 0, isLeaving: false },
  };
  const facts = { info: fakeInfo, version: "test" };

  test("is believed where a worker could say it", () => {
    expect(readBeat(encode(beat))).toEqual(beat);
    expect(readFacts(encode(facts))).toEqual(facts);
  });

  test.each([
    { capacity: NaN },
    { capacity: Infinity },
    { capacity: 0 },
    { capacity: -1 },
    { capacity: "4" },
    { capacity: 1e9 },
    { calls: null },
    { calls: { g: -100 } },
    { calls: { g: "9" } },
    { lines: -1e6 },
    { tokensPerSecond: -Infinity },
    { held: "A".repeat(100_000) },
    { model: { toString: 1 } },
    { model: "" },
    { fingerprint: "" },
    { fingerprint: "a.b" },
    { fingerprint: "A".repeat(32) },
    { fingerprint: "a".repeat(33) },
    { fingerprint: 7 },
    { fingerprint: undefined },
    { isLeaving: undefined },
  ])("is refused otherwise: %o", (wrong) => {
    expect(() => readBeat(encode({ ...beat, ...wrong }))).toThrow(/a heartbeat with/);
  });

  test.each([null, [], "x", { capacity: 1 }])("no heartbeat at all: %o", (other) => {
    expect(() => readBeat(encode(other))).toThrow(/a heartbeat with/);
  });

  test.each([
    { info: null },
    { info: {} },
    { info: { ...fakeInfo, contextSize: "512" } },
    { info: { ...fakeInfo, backend: null } },
    { info: { ...fakeInfo, warnings: 7 } },
    { info: { ...fakeInfo, warnings: [{}] } },
    { version: 1 },
  ])("no facts: %o", (wrong) => {
    expect(() => readFacts(encode({ ...facts, ...wrong }))).toThrow(/facts/);
  });
});

test("errors keep their kinds on the way, whatever a bundler has made of their names", () => {
  for (const made of [RestartingError, HangError, DeviceLostError]) {
    const error = factsToError({ ...errorToFacts(new made("m")), name: "a" });
    expect(error).toBeInstanceOf(made);
    expect(error.message).toBe("m");
  }
  expect(factsToError(errorToFacts(new UsageError("u")))).toBeInstanceOf(UsageError);
  // Written by somebody else: an error all the same.
  const facts = errorToFacts(new WorkerError("w"));
  for (const code of ["constructor", "__proto__", "other"]) {
    expect(factsToError({ ...facts, code: code as "worker" })).toBeInstanceOf(WorkerError);
    expect(factsToError({ ...facts, kind: code })).toBeInstanceOf(WorkerError);
  }
});

test("addresses: several, and none with a password", () => {
  expect(clusterServers("nats://a:4222, tls://b")).toEqual(["nats://a:4222", "tls://b"]);
  expect(() => clusterServers("http://a")).toThrow(/got "http:\/\/a", expected the address/);
  expect(() => clusterServers("nats://user:secret@a")).toThrow(/with a user or a password/);
  expect(() => clusterServers("nats://user:secret@a")).not.toThrow(/secret/);
});

test("NATS is tried less and less often while it is away, and often again after it was there", () => {
  let now = 0;
  const delay = reconnectDelay(() => now);
  let tries = 0;
  for (; now < 3_600_000; now += delay()) tries++;
  expect(tries).toBeLessThan(500); // 14,400 four times a second
  expect(delay()).toBe(10_000);
  now += 60_000;
  expect(delay()).toBe(250);
});

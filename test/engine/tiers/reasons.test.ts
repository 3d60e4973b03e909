// Computing again is never silent: for each way in which a known prompt is lost, the result says why, and status() counts it.

import { expect, test } from "vitest";
import type { ComputedAgain } from "../../../src/api/api.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { generate, type RunControl } from "../../../src/engine/generator.ts";
import { type TinyOptions, tinyEngine } from "../../support/tiny-engine.ts";
import { MemoryFolders } from "./memory-folders.ts";

const freeRunning: RunControl = { aborted: false, yieldThread: async () => {}, now: () => 0 };

const text = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => 4 + ((seed + i * seed + ((i * i * seed) >> 2)) % 40));

const tiersOf = (folders: MemoryFolders | undefined, ramBytes: number, diskBytes: number) => ({
  ramBytes,
  diskBytes,
  folders,
  model: "tiny",
  weights: "w",
  exact: false,
  now: () => 0,
});

async function engine(options: TinyOptions): Promise<Engine> {
  return await tinyEngine({ contextSize: 128, cacheTokens: 192, ...options });
}

async function turn(
  on: Engine,
  tokens: readonly number[],
): Promise<{ cached: number; again: ComputedAgain | undefined; ids: number[] }> {
  const request = { tokens, options: { maxTokens: 2, temperature: 0, ignoreEos: true } };
  const { timings, tokenIds } = await generate(on, request, freeRunning, () => {});
  await on.settled();
  return { cached: timings.cachedTokens, again: timings.computedAgain, ids: tokenIds };
}

async function close(on: Engine): Promise<void> {
  on.dispose();
  await on.ended();
}

const [one, two, three] = [1, 3, 7].map((seed) => text(90, seed)) as [number[], number[], number[]];

test("a new prompt, another turn and another branch have no reason", async () => {
  const on = await engine({ tiers: tiersOf(undefined, 1e7, 0) });
  const first = await turn(on, one);
  expect(first).toMatchObject({ cached: 0, again: undefined });
  const next = await turn(on, [...one, ...first.ids, 5]);
  expect(next).toMatchObject({ cached: 91, again: undefined });
  const branch = await turn(on, [...one.slice(0, 64), ...two.slice(0, 50)]);
  expect(branch).toMatchObject({ cached: 64, again: undefined });
  await close(on);
});

test("no room in the KV cache, and no copies", async () => {
  const on = await engine({});
  for (const tokens of [one, two, three]) await turn(on, tokens);
  const { cached, again } = await turn(on, one);
  expect(cached).toBe(0);
  expect(again).toMatchObject({ reason: "room", tokens: 89, at: 0 });
  expect(again!.text).toContain("--cache-ram");
  const { cache } = on.status();
  expect(cache.evicted.kv).toBeGreaterThan(0);
  expect(cache.tokens).toEqual({ kv: 0, ram: 0, disk: 0, computed: 360 });
  expect(cache.computedAgain).toEqual({ room: 89 });
  await close(on);
});

test("the budget of the copies is spent", async () => {
  const probe = await engine({ tiers: tiersOf(undefined, 1e7, 0) });
  await turn(probe, one);
  const { bytes } = probe.status().cache.ram;
  await close(probe);
  const on = await engine({ tiers: tiersOf(undefined, bytes * 1.5, 0) });
  for (const tokens of [one, two, three]) await turn(on, tokens);
  const { again } = await turn(on, one);
  expect(again).toMatchObject({ reason: "budget", at: 0 });
  expect(on.status().cache.evicted.ram).toBeGreaterThan(0);
  const held = on.status().cache.ram;
  expect(held.bytes).toBeLessThanOrEqual(held.budgetBytes);
  await close(on);
});

test("its copy is damaged, or was removed", async () => {
  for (const reason of ["damaged", "removed"] as const) {
    const folders = new MemoryFolders();
    const on = await engine({ tiers: tiersOf(folders, 0, 1e7) });
    for (const tokens of [one, two, three]) await turn(on, tokens);
    const [name, segment] = [...folders.files].find(([file]) => file.endsWith(".state"))!;
    if (reason === "damaged") segment.bytes.fill(1, 64 + 256, 64 + 256 + 20);
    else folders.files.delete(name);
    const { cached, again } = await turn(on, one);
    expect(cached).toBe(0);
    expect(again).toMatchObject({ reason, at: 0 });
    expect(on.status().cache.damaged).toBe(reason === "damaged" ? 1 : 0);
    // What is written from now on is found again.
    await turn(on, two);
    await turn(on, three);
    expect((await turn(on, [...one, 5])).cached).toBe(90);
    await close(on);
  }
});

test("history that was rewritten: the first differing token is named, and both versions are kept", async () => {
  const on = await engine({ cacheTokens: 512, tiers: tiersOf(undefined, 1e7, 0) });
  const rewritten = one.with(10, 3);
  await turn(on, one);
  const { cached, again } = await turn(on, rewritten);
  expect(cached).toBe(10);
  expect(again).toMatchObject({ reason: "changed", at: 10 });
  expect(again!.tokens).toBeGreaterThan(70);
  expect(again!.text).toContain(`token 10 is another (it was ${one[10]} "`);
  expect(again!.text).toContain("and is 3 ");
  expect((await turn(on, [...one, 5])).cached).toBe(90);
  expect((await turn(on, [...rewritten, 5])).cached).toBe(90);
  await close(on);
});

test("it was stored when the model was computed otherwise", async () => {
  const folders = new MemoryFolders();
  const before = await engine({ kvType: "f32", tiers: tiersOf(folders, 0, 1e7) });
  await turn(before, one);
  await close(before);
  const on = await engine({ kvType: "f16", tiers: tiersOf(folders, 0, 1e7) });
  const { again } = await turn(on, one);
  expect(again).toMatchObject({ reason: "settings", at: 0 });
  expect(again!.text).toContain("the type of the KV cache was f32, and is f16");
  expect((await turn(on, two)).again).toBeUndefined();
  await close(on);
  const same = await engine({ kvType: "f16", tiers: tiersOf(folders, 0, 1e7) });
  expect(await turn(same, [...one, 5])).toMatchObject({ cached: 90, again: undefined });
  expect(same.status().cache.tokens).toEqual({ kv: 0, ram: 0, disk: 90, computed: 1 });
  await close(same);
});

test("recurrent state was not kept at that place", async () => {
  const folders = new MemoryFolders();
  const options = { architecture: "jamba", tiers: tiersOf(folders, 0, 1e7) };
  const before = await engine(options);
  await turn(before, text(120, 5));
  await close(before);
  const on = await engine(options);
  const { cached, again } = await turn(on, [...text(120, 5).slice(0, 80), ...text(30, 9)]);
  expect(cached).toBe(0);
  expect(again).toMatchObject({ reason: "checkpoint", at: 0 });
  await close(on);
});

test("a prompt that is too short to be looked for has no reason, whatever state the model keeps", async () => {
  for (const architecture of ["llama", "jamba"]) {
    const folders = new MemoryFolders();
    const options = { architecture, tiers: tiersOf(folders, 0, 1e7) };
    const before = await engine(options);
    await turn(before, one);
    await close(before);
    const on = await engine(options);
    await turn(on, two); // the folder is read by now
    expect(await turn(on, one.slice(0, 60))).toMatchObject({ cached: 0, again: undefined });
    await close(on);
  }
});

test("clearing forgets all of it: nothing is found, and nothing is said to be lost", async () => {
  const folders = new MemoryFolders();
  const on = await engine({ tiers: tiersOf(folders, 1e7, 1e7) });
  await turn(on, one);
  await on.clearCache();
  expect([...folders.files.keys()].filter((name) => name.endsWith(".state"))).toEqual([]);
  expect(on.status().cache).toMatchObject({ ram: { bytes: 0 }, disk: { bytes: 0 } });
  expect(await turn(on, one)).toMatchObject({ cached: 0, again: undefined });
  expect((await turn(on, [...one, 7])).cached).toBe(90);
  await close(on);
});

test("copies in memory take what is left beside the model, which is said", async () => {
  const plenty = await engine({ availableBytes: 1e9, tiers: tiersOf(undefined, 1e7, 0) });
  expect(plenty.status().cache.ram.budgetBytes).toBe(1e7);
  expect(plenty.info.warnings).toEqual([]);
  const { weightBytes, kvBytes, workBytes } = plenty.status().memory;
  await close(plenty);
  const availableBytes = weightBytes + kvBytes + workBytes + 1_000_000;
  const on = await engine({ availableBytes, tiers: tiersOf(undefined, 1e7, 0) });
  const { budgetBytes } = on.status().cache.ram;
  expect(budgetBytes).toBeLessThan(2e6);
  expect(on.info.warnings).toEqual([expect.stringContaining("copies of state in memory")]);
  await close(on);
});

// Parts of npm run bench:cache about many texts: sessions that take turns at random with memory for a tenth of them, and branches of a
// session that go on after a restart.

import { median } from "../src/base/measure.ts";
import { type Model, type OpenOptions, open } from "../src/index.ts";
import { Random } from "../test/support/random.ts";
import { answer } from "./harness.ts";

export interface SwitchResult {
  sessions: number;
  sessionTokens: number;
  /** Sessions that memory has room for. */
  ramSessions: number;
  /** Medians of the time to the first token, in ms. */
  ramMs: number;
  diskMs: number;
  allMs: number;
  /** allMs as a multiple of ramMs. */
  ratio: number;
  fromRam: number;
  fromDisk: number;
}

const text = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => 10 + ((seed * 31 + i * (seed + 7) + ((i * i) >> 3)) % 200));

async function firstToken(model: Model, tokens: readonly number[]) {
  const { timings, tokenIds } = await answer(model, tokens, { maxTokens: 1 });
  const { ramTokens = 0, diskTokens = 0 } = timings.restored ?? {};
  return { ms: timings.totalMs, ramTokens, diskTokens, timings, tokenIds };
}

/** The KV cache has room for one session; memory for `ramSessions`; disk for all. */
export async function switchSessions(
  path: string,
  options: OpenOptions & { sessions: number; sessionTokens: number; ramSessions: number },
): Promise<SwitchResult> {
  const { sessions, sessionTokens, ramSessions, ...given } = options;
  const contextSize = sessionTokens + 64;
  const probe = await open(path, {
    ...given,
    contextSize,
    cacheRamBytes: 2 ** 40,
    cacheDiskBytes: 0,
  });
  await firstToken(probe, text(sessionTokens, 1));
  await probe.generate([10, 11], { maxTokens: 1 }).result; // by now it was copied
  const { bytes } = (await probe.status()).cache.ram;
  await probe.dispose();
  const cacheRamBytes = Math.ceil(bytes * ramSessions);
  await using model = await open(path, { ...given, contextSize, cacheRamBytes });
  for (let one = 0; one < sessions; one++) await firstToken(model, text(sessionTokens, one));
  const [ram, disk]: [number[], number[]] = [[], []];
  const random = new Random(1);
  for (let turn = 0; turn < sessions; turn++) {
    const chosen = random.below(sessions);
    const turned = await firstToken(model, [...text(sessionTokens, chosen), 11 + (turn % 100)]);
    if (turned.ramTokens > turned.diskTokens) ram.push(turned.ms);
    else if (turned.diskTokens > 0) disk.push(turned.ms);
  }
  // Hits in memory are rare by chance: the last sessions once more.
  for (let turn = 0; ram.length < 20 && turn < 60; turn++) {
    const one = await firstToken(model, [...text(sessionTokens, turn % 4), 150 + turn]);
    if (one.ramTokens > one.diskTokens) ram.push(one.ms);
  }
  const all = [...disk, ...ram.slice(0, Math.round((disk.length * ramSessions) / sessions))];
  return {
    ...{ sessions, sessionTokens, ramSessions },
    ramMs: median(ram),
    diskMs: median(disk),
    allMs: median(all),
    ratio: median(all) / median(ram),
    fromRam: ram.length,
    fromDisk: disk.length,
  };
}

export interface BranchResult {
  tokens: number;
  computedMs: number;
  branches: { cached: number; computed: number; ms: number; isSame: boolean }[];
}

/** Ten branches of a session, a restart, and each goes on; `isSame`: with the text that it has without copies. */
export async function goOnBranches(
  path: string,
  { trunk, ...given }: OpenOptions & { trunk: number },
): Promise<BranchResult> {
  const branches = Array.from({ length: 10 }, (_, i) => [...text(trunk, 3), ...text(40, 100 + i)]);
  let computedMs = 0;
  {
    await using model = await open(path, given);
    for (const [i, branch] of branches.entries()) {
      const { ms } = await firstToken(model, branch);
      if (i === 0) computedMs = ms;
    }
  }
  const { cacheDiskBytes: _, cacheRamBytes: __, ...plain } = given;
  const results: BranchResult["branches"] = [];
  await using model = await open(path, given);
  await using fresh = await open(path, plain);
  for (const branch of branches) {
    const next = [...branch, 12, 13, 14, 15];
    const { ms, timings, tokenIds } = await firstToken(model, next);
    const { promptTokens, cachedTokens: cached } = timings;
    const expected = await firstToken(fresh, next);
    const isSame = expected.tokenIds.join() === tokenIds.join();
    results.push({ cached, computed: promptTokens - cached, ms, isSame });
  }
  return { tokens: branches[0]!.length, computedMs, branches: results };
}

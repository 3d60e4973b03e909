// Engines of one process share its cores: they take turns where their threads do not fit together, in order of arrival,
// and a lost engine gives back what it had.

import { expect, test } from "vitest";
import { type CorePlace, CoreTurn, CoreTurns, TURN_MS } from "../../src/engine/core-turns.ts";
import { open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

const never = (): boolean => false;

/** ms, by the clock of all turns here. */
let now = 0;

function line(cores: number, ...threads: number[]): { turn: CoreTurn; leave(): void }[] {
  const turns = new CoreTurns(cores);
  return threads.map((count) => {
    const place = turns.enter() as CorePlace;
    return { turn: new CoreTurn(place, count, () => now), leave: () => turns.leave(place) };
  });
}

test("engines that have all cores take turns; one that waits comes before one that was just served", async () => {
  const [a, b] = line(2, 2, 2).map(({ turn }) => turn) as [CoreTurn, CoreTurn];
  expect(a.take()).toBe(true);
  expect(b.take()).toBe(false);
  const served = b.wait(never);
  a.release();
  expect(a.take()).toBe(false); // b was here first
  const again = a.wait(never);
  await served;
  expect(a.take()).toBe(false);
  b.release();
  await again;
  expect(b.take()).toBe(false);
  a.release();
  expect(b.take()).toBe(true);
});

test("engines whose threads fit on the cores compute at the same time", () => {
  const [a, b, c] = line(4, 2, 2, 1).map(({ turn }) => turn) as [CoreTurn, CoreTurn, CoreTurn];
  expect([a.take(), b.take(), c.take()]).toEqual([true, true, false]);
  a.release();
  expect(c.take()).toBe(true);
});

test("more threads than cores count as all cores, a GPU's engine takes none", () => {
  const [many, gpu] = line(2, 8, 0).map(({ turn }) => turn) as [CoreTurn, CoreTurn];
  expect([many.take(), gpu.take()]).toEqual([true, true]);
  gpu.release();
  many.release();
  expect(many.take()).toBe(true);
});

test("an aborted request leaves the line without the cores", async () => {
  const [a, b, c] = line(1, 1, 1, 1).map(({ turn }) => turn) as [CoreTurn, CoreTurn, CoreTurn];
  expect(a.take()).toBe(true);
  let isAborted = false;
  const aborted = b.wait(() => isAborted);
  const served = c.wait(never);
  isAborted = true;
  await aborted;
  b.release(); // it has nothing to give back
  expect(b.take()).toBe(false);
  a.release();
  await served;
});

test("an engine that is lost in a batch, or in the line, blocks nobody", async () => {
  const [a, b, c] = line(1, 1, 1, 1);
  expect(a!.turn.take()).toBe(true);
  const dies = (): never => {
    throw new Error("the thread died in the line");
  };
  await expect(b!.turn.wait(dies)).rejects.toThrow("died in the line");
  const served = c!.turn.wait(never);
  a!.leave();
  expect(a!.turn.take()).toBe(false); // b is still in the line
  b!.leave();
  await served;
});

/** A batch of so many ms; whether the threads were told to sleep at once after it. */
function batch(turn: CoreTurn, ms: number): boolean {
  const isLast = turn.begin();
  now += ms;
  turn.release(true);
  return isLast;
}

test("short batches follow each other until the turn is over; threads sleep only after the last", async () => {
  const [a, b] = line(2, 2, 2).map(({ turn }) => turn) as [CoreTurn, CoreTurn];
  expect(a.take()).toBe(true);
  const served = b.wait(never);
  const ms = TURN_MS / 4;
  const rests = [batch(a, ms)];
  while (a.take()) rests.push(batch(a, ms));
  expect(rests).toEqual([false, false, false, true]);
  await served; // without it, b would have waited for each of a's batches
  expect(a.take()).toBe(false);
});

test("a long batch is a turn of its own", async () => {
  const [a, b] = line(2, 2, 2).map(({ turn }) => turn) as [CoreTurn, CoreTurn];
  expect(a.take()).toBe(true);
  expect(batch(a, 10 * TURN_MS)).toBe(false); // nobody waits
  expect(a.take()).toBe(true);
  const served = b.wait(never);
  expect(batch(a, 10 * TURN_MS)).toBe(true); // as the one before took long, too
  expect(a.take()).toBe(false);
  await served;
});

test("cores are kept only while others wait", () => {
  const [a, b] = line(2, 2, 2).map(({ turn }) => turn) as [CoreTurn, CoreTurn];
  expect(a.take()).toBe(true);
  expect(batch(a, 1)).toBe(false);
  expect(b.take()).toBe(true); // a's next batch is not there yet
  expect(a.take()).toBe(false);
});

test("an engine that kept the cores gives them back when nothing follows", async () => {
  const [a, b] = line(2, 2, 2).map(({ turn }) => turn) as [CoreTurn, CoreTurn];
  for (const end of [() => a.end(), () => {}]) {
    expect(a.take()).toBe(true);
    const served = b.wait(never);
    batch(a, 1);
    end(); // or a timer does
    await served;
    b.release();
  }
});

test("models that generate at once say what each says alone", async () => {
  const files = [await tinyFile({ seed: 1 }), await tinyFile({ seed: 2 })];
  const models = await Promise.all(files.map(({ path }) => open(path)));
  const say = async (model: (typeof models)[number]): Promise<string> =>
    (await model.generate("the cat", { temperature: 0, maxTokens: 24 }).result).text;
  const alone = [await say(models[0]!), await say(models[1]!)];
  expect(await Promise.all(models.map(say))).toEqual(alone);
  await models[0]!.dispose();
  expect(await say(models[1]!)).toBe(alone[1]);
  await models[1]!.dispose();
  for (const { remove } of files) remove();
});

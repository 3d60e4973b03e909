// The lifecycle of models (apps/server/models): every move from every state of two models with room for one, and long random walks with
// three. A request is never lost, refused twice, or admitted to a model that leaves; a model that is used never leaves; there are never
// two loads at a time, nor more in memory than there is room for; and every state can be left.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { lifecycle, type State, stateMemory } from "../../apps/server/models/lifecycle.ts";
import { Random } from "../support/random.ts";
import { stepsSeen, World, type WorldOptions } from "./model-world.ts";

const usual = ["ask", "again", "release", "abort", "ok", "fail", "busy", "timer"];
const rare = ["short", "stop", "choose", "forget", "touch", "renew", "leave", "clear", "add"];

/** A world after these moves. */
function after(moves: readonly string[], options: WorldOptions): World {
  const world = new World(options);
  for (const move of moves) world.moves().get(move)!();
  return world;
}

/** How many worlds there are; throws with the moves that lead to a broken one. */
function explore(options: WorldOptions, most: number): { worlds: number; isAll: boolean } {
  const seen = new Set([new World(options).key()]);
  const queue: string[][] = [[]];
  for (let path = queue.shift(); path; path = queue.shift()) {
    for (const move of after(path, options).moves().keys()) {
      const longer = [...path, move];
      try {
        const world = after(longer, options);
        world.check();
        const key = world.key();
        if (seen.has(key)) continue;
        seen.add(key);
        world.settle();
      } catch (error) {
        throw new Error(`after ${longer.join(", ")}: ${String(error)}`, { cause: error });
      }
      queue.push(longer);
    }
    if (seen.size > most) return { worlds: seen.size, isAll: false };
  }
  return { worlds: seen.size, isAll: true };
}

const small = { sizes: { ant: 10, bee: 10 }, most: 1 };

test("all worlds of two models with room for one, and two requests", () => {
  const kinds = new Set(usual);
  const { worlds, isAll } = explore({ ...small, requests: 2, kinds }, 20_000);
  console.log(`${worlds} worlds`);
  expect(isAll).toBe(true);
});

test("all worlds with each of the rare moves", () => {
  for (const kind of rare) {
    const kinds = new Set([...usual.filter((one) => one !== "again"), kind]);
    const { worlds, isAll } = explore({ ...small, requests: 2, kinds }, 30_000);
    console.log(`${kind}: ${worlds} worlds`);
    expect(isAll, kind).toBe(true);
  }
});

test("random walks with everything, and room by bytes", () => {
  const random = new Random(7);
  const kinds = new Set([...usual, ...rare]);
  for (let walk = 0; walk < 2000; walk++) {
    const sizes = { ant: 10, bee: 10, ...(walk % 3 > 0 && { cat: 20 }) };
    const pinned = walk % 5 === 0 ? { pinned: "bee" } : {};
    const room = walk % 2 === 0 ? { most: 1 + (walk % 4) / 2 } : { bytes: 30 };
    const world = new World({
      sizes,
      ...room,
      ...pinned,
      requests: 6,
      kinds,
      versions: 9,
      choices: 9,
    });
    const path: string[] = [];
    try {
      for (let step = 0; step < 120; step++) {
        const moves = [...world.moves()];
        const [name, run] = random.pick(moves);
        path.push(name);
        run();
        world.check();
      }
      world.settle();
    } catch (error) {
      throw new Error(`walk ${walk}: ${path.join(", ")}: ${String(error)}`, { cause: error });
    }
  }
});

test("options that change while a stopped load ends: the next request has the new ones", () => {
  const kinds = new Set([...usual, ...rare]);
  const unloaded = ["ask ant", "ok open ant", "release 0", "leave ant", "ok unload ant"];
  const stopped = [...unloaded, "ask ant", "renew ant", "stop ant", "ask ant"];
  const world = after(stopped, { ...small, requests: 2, kinds });
  expect(world.machine.get("ant")!.state).toBe("stopping");
  world.settle();
  expect(world.machine.get("ant")!.resident!.version).toBe("1");
});

test("the table of docs/inside/model-lifecycle.md is this one", () => {
  const rows = Object.entries(lifecycle).map(([state, row]) => {
    const steps = Object.entries(row).map(([event, [to, ...actions]]) =>
      actions.length > 0 ? `${event} → ${to} (${actions.join(", ")})` : `${event} → ${to}`,
    );
    return `| \`${state}\` | ${stateMemory[state as State]} | ${steps.join("; ")} |`;
  });
  const page = readFileSync(
    new URL("../../docs/inside/model-lifecycle.md", import.meta.url),
    "utf8",
  );
  expect(page.split("\n").filter((line) => rows.includes(line))).toEqual(rows);
});

test("every state was reached and left, and every step of the table taken", () => {
  const steps = Object.entries(lifecycle).flatMap(([state, row]) =>
    Object.keys(row).map((event) => `${state} ${event}`),
  );
  expect(steps.filter((step) => !stepsSeen.has(step))).toEqual([]);
  expect(Object.keys(lifecycle)).toEqual(Object.keys(stateMemory));
});

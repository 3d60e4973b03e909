// Fuzz target "shapes": every op of the graph at random shapes, on every level of the CPU backend that can be had here, in
// guard mode, held against the reference. Machine code that leaves a buffer kills the process; the runner says at which case.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { FuzzTarget, Json } from "../target.ts";

/** Memories of cases that are over go when V8 collects them, and each has a hundred mappings. */
const COLLECT_EVERY = 40;

interface Modules {
  readonly cases: typeof import("../shape-case.ts");
  readonly inputs: typeof import("../shape-inputs.ts");
}

let modules: Modules | undefined;
let folder: string | undefined;
let collect: (() => void) | undefined;
let runs = 0;

async function prepare(): Promise<void> {
  // Before anything asks where machine code is kept: thousands of kernels are made.
  folder = mkdtempSync(join(tmpdir(), "lantern-shapes-"));
  process.env.LANTERN_CACHE = folder;
  const [cases, inputs] = await Promise.all([
    import("../shape-case.ts"),
    import("../shape-inputs.ts"),
  ]);
  modules = { cases, inputs };
  setFlagsFromString("--expose-gc");
  collect = runInNewContext("gc") as () => void;
}

/** The case as a line of test/fuzz/shapes.test.ts. */
function testLine(c: object): string {
  return `  ${JSON.stringify(c)},`;
}

export const target: FuzzTarget = {
  name: "shapes",
  describe: "every op at random shapes, on every level of the CPU backend, watched by guard mode",
  limitMs: 120_000,
  prepare,
  make: (seed) => ({ ...modules!.inputs.randomCase(seed) }) as unknown as Json,
  run: async (seed, input) => {
    const { cases, inputs } = modules!;
    const given = (input ?? { ...inputs.randomCase(seed) }) as Record<string, unknown>;
    const one = inputs.wholeCase(given);
    const quiet = console.error;
    console.error = () => {}; // the leading thread prints what it throws
    try {
      await cases.runShapeCase(one);
    } catch (error) {
      const cause = rootOf(error);
      throw new Error(`${cause.message}\n${testLine(one)}`, { cause });
    } finally {
      console.error = quiet;
      if (++runs % COLLECT_EVERY === 0) collect!();
    }
  },
  dispose: () => {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  },
};

/** What began it: a step that fails says only that it did. */
function rootOf(error: unknown): Error {
  const whole = error instanceof Error ? error : new Error(String(error));
  return whole.cause instanceof Error && /failed/.test(whole.message) ? rootOf(whole.cause) : whole;
}

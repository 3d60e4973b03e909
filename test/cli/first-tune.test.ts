// The first tune on the command line: `run` on a terminal, with nothing remembered, measures the kernels of the model
// after the text, once. The machine is a fake one that is always calm: times that other programs disturb are not kept.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { main } from "../../src/cli/main.ts";
import { readTune, untunedTypes } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-first-tune-"));
  vi.stubEnv("LANTERN_CACHE", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const bar = "tuning, once (Ctrl-C skips)";
const text = ["run", "-m", "", "-p", "the cat", "-n", "2", "--temp", "0", "-t", "1"];

interface Run {
  code: number;
  out: string;
  err: string;
}

/** `lantern run` where somebody watches; `prepare` may change the terminal. */
async function run(more: string[] = [], prepare?: (terminal: FakeTerminal) => void): Promise<Run> {
  const terminal = new FakeTerminal();
  terminal.environment = { NO_COLOR: "1", LANTERN_NO_LIMIT: "1" };
  terminal.errIsTerminal = true;
  terminal.now = () => performance.now(); // bars are drawn by the clock
  prepare?.(terminal);
  const args = text.map((arg) => (arg === "" ? file.path : arg));
  const code = await main(
    [...args, ...more],
    terminal,
    nodeDownloadPlatform({ LANTERN_CACHE: folder }),
  );
  return { code, out: terminal.stdout, err: terminal.stderr };
}

/** Files of times in the cache, half-written ones too; kernels that were compiled are beside them. */
const remembered = (): string[] => readdirSync(folder).filter((name) => name !== "native");

test("tunes after the text, with a bar, and remembers it: the next run does not", async () => {
  expect(await untunedTypes(file.path)).toEqual(["f32"]);
  const first = await run();
  expect(first.code).toBe(0);
  expect(first.err.indexOf(bar)).toBeGreaterThan(first.err.indexOf("generation"));
  expect(first.err).toMatch(/tuning, once \(Ctrl-C skips\) {2}\[[#.]+\] {2}\d+%/);
  expect(first.err.endsWith("\r\x1b[K")).toBe(true); // the bar is gone
  expect(remembered()).toEqual([expect.stringMatching(/^tune-.+\.txt$/)]);
  const [name] = remembered();
  const times = readFileSync(join(folder, name!), "utf8");
  expect(readTune(times, name!).groups.map(({ dtype }) => dtype)).toContain("f32");
  expect(await untunedTypes(file.path)).toEqual([]);

  const second = await run();
  expect(second.out).toBe(first.out);
  expect(second.err).not.toContain("tuning");
  expect(readFileSync(join(folder, name!), "utf8")).toBe(times);
});

test("Ctrl-C skips it, and nothing half-written stays", async () => {
  const { code, out, err } = await run([], (terminal) => {
    const write = terminal.err.bind(terminal);
    terminal.err = (piece) => {
      write(piece);
      if (piece.includes(bar)) terminal.pressCtrlC();
    };
  });
  expect(code).toBe(0);
  expect(out).toContain("the cat"); // the text was there before
  expect(err.split(bar)).toHaveLength(2); // drawn once, then gone
  expect(err.split("\r\x1b[K").at(-1)).toContain(
    'skipped; "lantern tune" does it later, --no-tune turns this off',
  );
  expect(remembered()).toEqual([]);
  expect(await untunedTypes(file.path)).toEqual(["f32"]);
});

test("what nobody watches, or nobody wants, is not tuned", async () => {
  const runs = [
    await run([], (terminal) => {
      terminal.errIsTerminal = false;
    }),
    await run(["--no-tune"]),
    await run([], (terminal) => {
      terminal.environment.LANTERN_NO_TUNE = "1";
    }),
  ];
  for (const { code, err } of runs) {
    expect(code).toBe(0);
    expect(err).not.toContain("tuning");
  }
  expect(remembered()).toEqual([]);
});

test("times that other programs disturbed are not kept, and that is said", async () => {
  const { code, err } = await run([], (terminal) => {
    let asked = 0;
    terminal.load = () => {
      asked++; // 10 s later, another program has used two cores all the time
      return { loadAverage: 2, busySeconds: 20 * asked, ownSeconds: 0, atMs: 10_000 * asked };
    };
  });
  expect(code).toBe(0);
  expect(err).toContain("kernels were not tuned, because other programs used 2.0 cores");
  expect(remembered()).toEqual([]);
});

describe("lantern tune", () => {
  const busy = (terminal: FakeTerminal): void => {
    let asked = 0;
    terminal.load = () => {
      asked++;
      return { loadAverage: 2, busySeconds: 20 * asked, ownSeconds: 0, atMs: 10_000 * asked };
    };
  };
  const tune = async (more: string[], prepare?: (terminal: FakeTerminal) => void): Promise<Run> => {
    const terminal = new FakeTerminal();
    terminal.environment = { NO_COLOR: "1" };
    prepare?.(terminal);
    const args = ["tune", "-m", file.path, "--quick", "-t", "1", ...more];
    const code = await main(args, terminal, nodeDownloadPlatform({ LANTERN_CACHE: folder }));
    return { code, out: terminal.stdout, err: terminal.stderr };
  };

  test("remembers nothing that was measured on a busy machine, and says so", async () => {
    const { code, err } = await tune([], busy);
    expect(code).toBe(0);
    expect(err).toContain("The times are not used: other programs used 2.0 cores");
    expect(err).not.toContain("Times written to");
    expect(remembered()).toEqual([]);
  });

  test("unless it is told to, or the machine is calm", async () => {
    const forced = await tune(["--force"], busy);
    expect(forced.err).toContain("Times written to");
    expect(remembered()).toHaveLength(1);
    rmSync(join(folder, remembered()[0]!));
    const calm = await tune([]);
    expect(calm.err).not.toContain("The times are not used");
    expect(remembered()).toHaveLength(1);
  });
});

// The tune in the background after `run`: when it is started, what it looks at before and while it measures, what it keeps, who may
// end it, and what `lantern tune status` says of it. The measurement, the load and the clock are made up; the
// process of its own is in background-process.test.ts.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import {
  type BackgroundTools,
  backgroundTuneText,
  lastBackgroundTune,
  mostBackgroundMs,
  tuneAfterwards,
  tuneInBackground,
} from "../../apps/cli/background-tune.ts";
import type { CliContext } from "../../apps/cli/command.ts";
import { main } from "../../apps/cli/main.ts";
import { endBackgroundTune } from "../../apps/cli/tune-lock.ts";
import { AbortedError, postponeTune, type TuneFile, type TuneOptions } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { sampleFile } from "../tune/sample.ts";
import { FakeTerminal } from "./fake-terminal.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-background-tune-"));
  vi.stubEnv("LANTERN_CACHE", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** A machine of two cores: `others` of them are used by other programs, as long as the clock goes on. */
class Machine extends FakeTerminal {
  others = 0;
  #busy = 0;
  #at = 0;
  override load() {
    this.#busy += (this.others * (this.clock - this.#at)) / 1000;
    this.#at = this.clock;
    return { loadAverage: 0, busySeconds: this.#busy, ownSeconds: 0, atMs: this.clock };
  }
}

function contextOf(terminal: FakeTerminal): CliContext {
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const log = { debug: () => {} };
  return { terminal, downloads, log } as unknown as CliContext;
}

const [one, two] = sampleFile.groups as [TuneFile["groups"][0], TuneFile["groups"][0]];
const fileOf = (...groups: TuneFile["groups"]) => ({ ...sampleFile, groups });

interface Scripted {
  machine: Machine;
  context: CliContext;
  /** Types without times. */
  types: string[];
  isPostponed: boolean;
  /** Matrices whose times were stored, by call. */
  stored: number[];
  postponed: number;
  options: TuneOptions[];
  run(signal?: AbortSignal): Promise<void>;
}

/** `work` is the measurement. */
function scripted(work: (options: TuneOptions) => Promise<void>): Scripted {
  const machine = new Machine();
  const context = contextOf(machine);
  const found: Scripted = {
    ...{ machine, context, types: ["q4_0"], isPostponed: false },
    ...{ stored: [], postponed: 0, options: [] },
    run: (signal = new AbortController().signal) =>
      tuneInBackground("/models/a.gguf", { tune: true }, context, signal, tools),
  };
  const tools: BackgroundTools = {
    tune: async (options) => {
      found.options.push(options);
      await work(options);
    },
    untunedTypes: async () => found.types,
    rememberTune: async ({ groups }) => {
      found.stored.push(groups.length);
      return join(folder, "tune.txt");
    },
    isPostponed: async () => found.isPostponed,
    postpone: async () => {
      found.postponed++;
    },
    pause: async (ms) => {
      machine.clock += ms;
    },
    date: () => new Date("2026-11-19T05:00:00Z"),
  };
  return found;
}

const status = (context: CliContext) => lastBackgroundTune(context);
const files = (): string[] => readdirSync(folder).sort();
/** What a look has found takes effect. */
const aborted = (signal: AbortSignal | undefined) =>
  expect.poll(() => signal!.aborted, { timeout: 60_000, interval: 5 }).toBe(true);

describe("the measurement", () => {
  test("stores each matrix when it is measured, asks for what is missing only, and leaves no lock", async () => {
    const states: unknown[] = [];
    const it = scripted(async ({ onMatrix }) => {
      it.machine.clock += 5000;
      await onMatrix!(fileOf(one));
      states.push((await status(it.context))?.measured);
      it.machine.clock += 5000;
      await onMatrix!(fileOf(one, two));
    });
    await it.run();
    expect(it.options).toEqual([
      expect.objectContaining({
        ...{ model: "/models/a.gguf", mode: "quick", missing: true, remember: false },
      }),
    ]);
    expect(it.stored).toEqual([1, 2]);
    expect(states).toEqual([["q4_0 1024 x 512, 1 thread"]]);
    expect(await status(it.context)).toMatchObject({ state: "ended", processId: process.pid });
    expect((await status(it.context))?.measured).toHaveLength(2);
    expect(it.postponed).toBe(0);
    expect(files()).toEqual(["tune-background.json"]);
  });

  test("does not begin on a busy machine: it looks three times, then waits a day", async () => {
    const it = scripted(async () => {});
    it.machine.others = 1;
    await it.run();
    expect(it.options).toEqual([]);
    expect(it.machine.clock).toBe(3 * 1000 + 2 * 5000);
    expect(it.postponed).toBe(1);
    expect(await status(it.context)).toMatchObject({
      state: "stopped",
      why: "other programs use the machine",
      measured: [],
    });
  });

  test("begins when the machine has become idle", async () => {
    const it = scripted(async () => {});
    it.machine.others = 1;
    const load = it.machine.load.bind(it.machine);
    it.machine.load = () => {
      if (it.machine.clock >= 6000) it.machine.others = 0;
      return load();
    };
    await it.run();
    expect(it.options).toHaveLength(1);
    expect(it.postponed).toBe(0);
  });

  test("keeps what it had when others begin to use the machine, and does not store what they disturbed", async () => {
    const it = scripted(async ({ onMatrix, onProgress, signal }) => {
      it.machine.clock += 5000;
      await onMatrix!(fileOf(one));
      it.machine.others = 1;
      it.machine.clock += 2000;
      onProgress!(0.5, "");
      await aborted(signal);
      throw new AbortedError("tuning");
    });
    await it.run();
    expect(it.stored).toEqual([1]);
    expect(it.postponed).toBe(1);
    expect(await status(it.context)).toMatchObject({
      state: "stopped",
      why: "other programs used 1.0 cores",
      measured: ["q4_0 1024 x 512, 1 thread"],
    });
    expect(files()).toEqual(["tune-background.json"]);
  });

  test("ends when a Lantern command opens a model, without waiting a day", async () => {
    const it = scripted(async ({ onMatrix, onProgress, signal }) => {
      await onMatrix!(fileOf(one));
      await endBackgroundTune(it.context);
      it.machine.clock += 2000;
      onProgress!(0.5, "");
      await aborted(signal);
      throw new AbortedError("tuning");
    });
    await it.run();
    expect(it.stored).toEqual([1]);
    expect(it.postponed).toBe(0);
    expect((await status(it.context))?.why).toBe("another Lantern command opened a model");
  });

  test("leaves the lock of the one that came after it alone", async () => {
    const lock = join(folder, "tune-background.lock");
    const it = scripted(async () => writeFileSync(lock, "another's"));
    await it.run();
    expect(readFileSync(lock, "utf8")).toBe("another's");
  });

  test("ends when it is asked to, and after two minutes", async () => {
    const asked = new AbortController();
    const ended = scripted(async () => {
      asked.abort();
      throw new AbortedError("tuning");
    });
    await ended.run(asked.signal);
    expect((await status(ended.context))?.why).toBe("it was asked to end");
    const late = scripted(async ({ onMatrix, onProgress, signal }) => {
      late.machine.clock += mostBackgroundMs;
      onProgress!(0.9, "");
      await aborted(signal);
      await onMatrix!(fileOf(one));
    });
    await late.run();
    expect(late.stored).toEqual([]);
    expect((await status(late.context))?.why).toBe("its two minutes were over");
  });

  test("is one at a time, and leaves servers alone, which tune by themselves", async () => {
    const second = scripted(async () => {});
    const first = scripted(async () => await second.run());
    await first.run();
    expect(first.options).toHaveLength(1);
    expect(second.options).toEqual([]);
    expect((await status(first.context))?.state).toBe("ended");
  });

  test("does nothing where there is nothing to measure, or for a day after a busy try", async () => {
    const tuned = scripted(async () => {});
    tuned.types = [];
    await tuned.run();
    const postponed = scripted(async () => {});
    postponed.isPostponed = true;
    await postponed.run();
    expect([...tuned.options, ...postponed.options]).toEqual([]);
    expect(files()).toEqual([]);
  });

  test("that fails waits a day, and says why", async () => {
    const it = scripted(async () => {
      throw new Error("the disk is full");
    });
    await it.run();
    expect(it.postponed).toBe(1);
    expect(await status(it.context)).toMatchObject({
      state: "failed",
      why: "Error: the disk is full",
    });
    expect(files()).toEqual(["tune-background.json"]);
  });
});

describe("run starts it", () => {
  const info = { backend: { placement: [] } } as never;

  /** What would be started. */
  async function started(
    prepare: (terminal: FakeTerminal) => void = () => {},
    flags: Parameters<typeof tuneAfterwards>[1] = { tune: true },
    about: never = info,
  ): Promise<{ args: readonly string[]; env: Readonly<Record<string, string>> }[]> {
    const found: { args: readonly string[]; env: Readonly<Record<string, string>> }[] = [];
    const terminal: FakeTerminal & { startInBackground?: unknown } = new FakeTerminal();
    terminal.errIsTerminal = true;
    terminal.startInBackground = async (
      args: readonly string[],
      env: Readonly<Record<string, string>>,
    ) => void found.push({ args, env });
    prepare(terminal);
    await tuneAfterwards(file.path, flags, about, contextOf(terminal));
    return found;
  }

  test("where a person watches and types have no times, with absolute paths", async () => {
    const [start, ...more] = await started();
    expect(more).toEqual([]);
    expect(start).toEqual({
      args: ["tune", "background", "-m", file.path],
      env: { LANTERN_CACHE: folder },
    });
    const [held] = await started(undefined, { tune: true, weights: "f16" });
    expect(held?.args.slice(-2)).toEqual(["--weights", "f16"]);
  });

  test.each<[string, (terminal: FakeTerminal) => void, Parameters<typeof tuneAfterwards>[1]?]>([
    ["without a terminal", (t) => Object.assign(t, { errIsTerminal: false })],
    ["in CI", (t) => Object.assign(t.environment, { CI: "true" })],
    ["with LANTERN_NO_TUNE", (t) => Object.assign(t.environment, { LANTERN_NO_TUNE: "1" })],
    ["with --no-tune", () => {}, { tune: false }],
    ["with --tune-file", () => {}, { tune: true, tuneFile: "mine.txt" }],
    ["with --no-native", () => {}, { tune: true, native: false }],
    ["with --level", () => {}, { tune: true, level: 3 }],
  ])("not %s", async (_, prepare, flags) => {
    expect(await started(prepare, flags)).toEqual([]);
  });

  test("also where CI says no", async () => {
    expect(await started((t) => Object.assign(t.environment, { CI: "false" }))).toHaveLength(1);
  });

  test("not where all types were tuned", async () => {
    const tuned = { backend: { placement: [], isTuned: true } } as never;
    expect(await started(undefined, undefined, tuned)).toEqual([]);
  });

  test("not for a day after a busy try, and not where a GPU computes all layers", async () => {
    const placed = (isDevice: boolean) =>
      ({ backend: { placement: [{ isDevice: true }, { isDevice }] } }) as never;
    expect(await started(undefined, undefined, placed(true))).toEqual([]);
    expect(await started(undefined, undefined, placed(false))).toHaveLength(1);
    await postponeTune();
    expect(await started()).toEqual([]);
  });

  test("not where the model has gone meanwhile: the text was written, and nothing else matters", async () => {
    const terminal: FakeTerminal & { startInBackground?: unknown } = new FakeTerminal();
    terminal.errIsTerminal = true;
    terminal.startInBackground = async () => expect.fail("started");
    await tuneAfterwards(join(folder, "gone.gguf"), { tune: true }, info, contextOf(terminal));
  });
});

describe("lantern tune status", () => {
  async function said(...flags: string[]): Promise<string> {
    const terminal = new FakeTerminal();
    const downloads = nodeDownloadPlatform({ LANTERN_CACHE: folder });
    expect(await main(["tune", "status", ...flags], terminal, downloads)).toBe(0);
    return terminal.stdout;
  }

  test("says what it did, when, and when it tries again", async () => {
    expect(await said()).toBe("Nothing was tuned in the background yet.\n");
    const it = scripted(async ({ onMatrix }) => await onMatrix!(fileOf(one)));
    await it.run();
    expect(await said()).toBe(
      [
        "The last tune in the background has measured everything that it wanted",
        "  /models/a.gguf, began 2026-11-19 05:00:00 UTC, ended 2026-11-19 05:00:00 UTC",
        `Stored in ${join(folder, "tune.txt")}:`,
        "  q4_0 1024 x 512, 1 thread\n",
      ].join("\n"),
    );
    expect(JSON.parse(await said("--json"))).toMatchObject({
      last: { state: "ended", measured: ["q4_0 1024 x 512, 1 thread"] },
      postponed_until: null,
    });
    await postponeTune(new Date());
    expect(await said()).toMatch(/busy at the last try: the next one is after \d{4}-/);
  });

  test("says of one that was killed that it was, and nothing of what cannot be read", async () => {
    const dead = { state: "measuring", processId: 2 ** 22 + 1, model: "m", startedAt: "2026" };
    const place = join(folder, "tune-background.json");
    writeFileSync(place, JSON.stringify({ ...dead, measured: [] }));
    const last = await status(contextOf(new FakeTerminal()));
    expect(last).toMatchObject({ state: "stopped", why: "it was killed" });
    expect(backgroundTuneText(last, undefined)).toContain("stopped: it was killed");
    for (const text of ["", "{", "null", "7", '{"state": "ended"}']) {
      writeFileSync(place, text);
      expect(await status(contextOf(new FakeTerminal()))).toBeUndefined();
    }
  });
});

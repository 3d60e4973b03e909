// Speeds beside this machine's limits, on the command line and in the API: with a remembered measurement, without one,
// with one that cannot be used, and switched off.
// Held against: measurements that the test wrote.

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { CliContext } from "../../apps/cli/command.ts";
import { idleMeasurement } from "../../apps/cli/machine-limits.ts";
import { main } from "../../apps/cli/main.ts";
import type { MachineMeasurement } from "../../src/api/rates.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { machineMeasurement, open, rememberedMachine } from "../../src/index.ts";
import { loweringText, machineToText } from "../../src/machine/file.ts";
import { expectedTarget } from "../../src/machine/native.ts";
import { buildModel } from "../../src/models/build.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import type { NativeHost } from "../../src/platform/platform.ts";
import { measuredChunk } from "../../src/tune/measured-choices.ts";
import { nativeHere } from "../support/native.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

let folder: string;
let machineFile: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-machine-"));
  machineFile = join(folder, "machine.json");
  vi.stubEnv("LANTERN_CACHE", folder);
  vi.stubEnv("LANTERN_NO_LIMIT", "");
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const rates = (perSecond: number) => [{ threads: 1, perSecond }];
/** A machine so fast that nothing here reaches its limits. */
const machine: MachineMeasurement = {
  cpu: nodePlatform.cpu(),
  cores: nodePlatform.cores,
  memoryBytes: 64e9,
  lowering: loweringText(await expectedTarget(nodePlatform)),
  readBytes: rates(2e12),
  cachedReads: [{ setBytes: 2 ** 20, readBytes: rates(4e12) }],
  f32Ops: rates(7e12),
  int8Ops: rates(9e12),
  measuredAt: "2026-11-15T05:10:37.842Z",
};

async function lantern(args: string[], prepare?: (terminal: FakeTerminal) => void) {
  const terminal = new FakeTerminal();
  terminal.environment = {};
  prepare?.(terminal);
  const code = await main(args, terminal, nodeDownloadPlatform({ LANTERN_CACHE: folder }));
  return { code, out: terminal.stdout, err: terminal.stderr };
}

const generate = () => [
  "run",
  "-m",
  file.path,
  "-p",
  "the cat",
  "-n",
  "4",
  "--temp",
  "0",
  "-t",
  "1",
];

describe("with a remembered measurement", () => {
  beforeEach(() => writeFileSync(machineFile, machineToText(machine)));

  test("run: both phases against the resource that binds them", async () => {
    const { code, err } = await lantern(generate());
    expect(code).toBe(0);
    const limit = String.raw`[\d.]+% of the (bandwidth|arithmetic) limit \([\d.]+ of \d+ (GB/s|GOPS)\)(, others used .* cores)?`;
    expect(err).toMatch(new RegExp(`^prompt .* tokens/s +${limit}$`, "m"));
    expect(err).toMatch(new RegExp(`^generation .* tokens/s +${limit}$`, "m"));
    expect(err).not.toContain("lantern machine");
  });

  test("run --json: resource, tokens per second, fraction", async () => {
    const { out } = await lantern([...generate(), "--json"]);
    const { timings } = JSON.parse(out) as { timings: Record<string, unknown> };
    for (const phase of ["prompt_limit", "predicted_limit"]) {
      expect(timings[phase]).toEqual({
        resource: expect.stringMatching(/^(bandwidth|arithmetic)$/),
        tokens_per_second: expect.any(Number),
        fraction: expect.any(Number),
        quick: false,
      });
    }
    const { fraction, tokens_per_second: allowed } = timings.predicted_limit as Record<
      string,
      number
    >;
    expect(fraction! * allowed!).toBeCloseTo(timings.predicted_per_second as number, 3);
  });

  test.each([["--no-limit"], ["LANTERN_NO_LIMIT"]])("%s: speeds alone", async (how) => {
    const flags = how.startsWith("--") ? [how] : [];
    const { err } = await lantern([...generate(), ...flags], (terminal) => {
      if (flags.length === 0) terminal.environment = { LANTERN_NO_LIMIT: "1" };
    });
    expect(err).toMatch(/tokens\/s$/m);
    expect(err).not.toContain("limit");
  });

  test.each([true, false])("chat: in the line after the answer; terminal: %s", async (typed) => {
    const { err } = await lantern(["chat", "-m", file.path, "-n", "3", "-t", "1"], (terminal) => {
      terminal.inIsTerminal = typed;
      terminal.script = ["hello"];
    });
    expect(err).toMatch(
      /^\d tokens, [\d.]+ tokens\/s, [\d.]+% of the \w+ limit \(.*\)(, others used .* cores)?$/m,
    );
  });

  test("bench: the limit, the share of it and what binds", async () => {
    const args = ["bench", "-m", file.path, "-t", "1", "-p", "8", "-n", "3", "-r", "2"];
    const { out } = await lantern(args);
    expect(out).toMatch(/others +limit +of limit +limited by$/m);
    expect(out).toMatch(/ pp8 .* [\d.]+% +(bandwidth|arithmetic)$/m);
    const report = JSON.parse((await lantern([...args, "--json"])).out) as {
      results: { tokens_per_second: { median: number }; limit: Record<string, number> }[];
    };
    expect(report.results).toHaveLength(2);
    for (const { limit, tokens_per_second: reached } of report.results) {
      expect(limit.fraction).toBeCloseTo(reached.median / limit.tokens_per_second!);
    }
    expect((await lantern([...args, "--no-limit"])).out).not.toContain("limit");
  });

  test("machine: a table, or JSON", async () => {
    const { code, out, err } = await lantern(["machine"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out.startsWith(`${machine.cpu}, ${machine.cores} core`)).toBe(true);
    expect(out).toContain(", 64.0 GB of memory\n");
    expect(out).toContain(`measured 2026-11-15 05:10 UTC, ${machine.lowering}`);
    expect(out).toMatch(/^reading from memory +2000\.0 +GB\/s$/m);
    expect(out).toMatch(/^reading the same 1\.0 MB +4000\.0 +GB\/s$/m);
    expect(out).toMatch(/^F32 multiply-add +7000\.0 +GFLOPS$/m);
    expect(out).toMatch(/^int8 dot product +9000\.0 +GOPS$/m);
    expect(JSON.parse((await lantern(["machine", "--json"])).out)).toMatchObject({
      cpu: machine.cpu,
      read_bytes: [{ threads: 1, per_second: 2e12 }],
      measured_at: machine.measuredAt,
      int8_tile_ops: null,
    });
    expect(out).not.toContain("int8, AMX tiles");
  });

  test("machine: AMX tiles, where there are any", async () => {
    writeFileSync(machineFile, machineToText({ ...machine, int8TileOps: rates(7e13) }));
    expect((await lantern(["machine"])).out).toMatch(/^int8, AMX tiles +70000\.0 +GOPS$/m);
    const json: unknown = JSON.parse((await lantern(["machine", "--json"])).out);
    expect(json).toMatchObject({ int8_tile_ops: [{ threads: 1, per_second: 7e13 }] });
  });

  test("prompt tokens beside those who write: as vectors compute them, AMX tiles or not", async () => {
    const { graph } = buildModel(tinyModel({ weightType: "q8_0" }));
    const slow = { ...machine, readBytes: rates(1e9), f32Ops: rates(3e9), int8Ops: rates(3e10) };
    const chunks: (number | undefined)[] = [];
    for (const measured of [slow, { ...slow, int8TileOps: rates(3e12) }]) {
      // In a place of its own each: this process remembers what it has read.
      const place = mkdtempSync(join(folder, "chunk-"));
      writeFileSync(join(place, "machine.json"), machineToText(measured));
      vi.stubEnv("LANTERN_CACHE", place);
      chunks.push((await measuredChunk(1))!(graph, dtypeByName("f16")!));
    }
    expect(chunks[0]).toBeGreaterThan(8);
    expect(chunks[1]).toBe(chunks[0]);
  });

  test("the API's timings carry limits, as long as nobody says no", async () => {
    await using model = await open(file.path, { threads: 1 });
    const { timings } = await model.generate("the cat", { maxTokens: 3, temperature: 0 }).result;
    expect(timings.limits!.generation!.fraction).toBeGreaterThan(0);
    expect(timings.limits!.prompt!.possiblePerSecond).toBeGreaterThan(1e12);
    expect(timings.work.generation.bytes).toBeGreaterThan(2 * model.info.weightBytes);
    vi.stubEnv("LANTERN_NO_LIMIT", "1");
    const bare = await model.generate("the cat", { maxTokens: 3 }).result;
    expect(bare.timings.limits).toBeUndefined();
  });

  test("a speed beyond its limit says what may be wrong", async () => {
    const slow = { readBytes: rates(1), cachedReads: [], f32Ops: rates(1), int8Ops: rates(1) };
    writeFileSync(machineFile, machineToText({ ...machine, ...slow }));
    const { err } = await lantern(generate());
    expect(err).toContain('"lantern machine --measure" measures it again');
  });
});

describe("without one", () => {
  test("while chat and serve are idle, a better one replaces a quick one", async () => {
    await machineMeasurement({ quick: true });
    expect(await rememberedMachine()).toBeUndefined();
    const terminal = new FakeTerminal();
    terminal.environment = {};
    const [chore] = idleMeasurement({ limit: true }, { terminal } as unknown as CliContext);
    await chore!(new AbortController().signal);
    expect((await rememberedMachine())!.quick).toBeUndefined();
    expect(readFileSync(machineFile, "utf8")).not.toContain("quick");
  });

  test("machine: Ctrl-C gives up", async () => {
    const { code, out, err } = await lantern(["machine"], (terminal) => {
      terminal.errIsTerminal = true;
      const write = terminal.err.bind(terminal);
      terminal.err = (text) => {
        write(text);
        if (text.includes("measuring this machine")) setTimeout(() => terminal.pressCtrlC());
      };
    });
    expect({ code, out }).toEqual({ code: 130, out: "" });
    expect(err).toContain("measuring this machine");
  });

  test("a measurement is remembered, whole", async () => {
    expect(await rememberedMachine()).toBeUndefined();
    const measured = await machineMeasurement({ seconds: 0 });
    expect(readFileSync(machineFile, "utf8")).toBe(machineToText(measured));
    expect(await machineMeasurement({ seconds: 0 })).toBe(measured);
    expect(await rememberedMachine()).toBe(measured);
  });
});

const tilesHere = nativeHere.some(({ native }) => native.target.amx);
const noTiles = tilesHere ? "" : " [skipped: this machine has no AMX tiles]";

describe("where the system refuses AMX tiles", () => {
  /** The first that is loaded is what asks for them. */
  function refusing(): void {
    const host = nodeNative() as NativeHost;
    let loads = 0;
    const load: NativeHost["load"] = (bytes) => (loads++ === 0 ? "not today" : host.load(bytes));
    vi.spyOn(nodePlatform, "native").mockResolvedValue({ ...host, load });
  }
  afterEach(() => void vi.restoreAllMocks());

  test.skipIf(!tilesHere)(`a measurement without them holds${noTiles}`, async () => {
    refusing();
    const measured = await machineMeasurement({ seconds: 0 });
    const without = await expectedTarget(nodePlatform, { tiles: false });
    expect(measured.lowering).toBe(`machine code for ${without}, no AMX tiles`);
    expect(measured).not.toHaveProperty("int8TileOps");
    // From the file: in another place, what this process knows does not count.
    const other = mkdtempSync(join(folder, "other-"));
    copyFileSync(machineFile, join(other, "machine.json"));
    vi.stubEnv("LANTERN_CACHE", other);
    const notes: string[] = [];
    expect(await rememberedMachine({ onNote: (note) => notes.push(note) })).toEqual(measured);
    expect(notes).toEqual([]);
  });
});

describe("with one that cannot be used", () => {
  test("an older one is measured anew, and that is said", async () => {
    writeFileSync(machineFile, machineToText(machine).replace(/("lantern_machine": )2/, "$11"));
    const notes: string[] = [];
    await machineMeasurement({ seconds: 0, onNote: (note) => notes.push(note) });
    expect(notes).toEqual([expect.stringContaining("it has version 1, expected 2")]);
  });

  test.each([
    ["of another processor", machineToText({ ...machine, cpu: "Other" }), "another processor"],
    ["that is broken", "{", "it is not JSON"],
  ])("a file %s is measured anew, and that is said", async (_, text, reason) => {
    writeFileSync(machineFile, text);
    const notes: string[] = [];
    const measured = await machineMeasurement({ seconds: 0, onNote: (note) => notes.push(note) });
    expect(notes).toEqual([expect.stringContaining(reason)]);
    expect(notes[0]).toContain(machineFile);
    expect(readFileSync(machineFile, "utf8")).toBe(machineToText(measured));
  });

  test("a place that can be neither read nor written", async () => {
    mkdirSync(machineFile);
    const notes: string[] = [];
    const measured = await machineMeasurement({ seconds: 0, onNote: (note) => notes.push(note) });
    expect(measured.cores).toBe(nodePlatform.cores);
    expect(notes).toEqual([
      expect.stringContaining("it cannot be read"),
      expect.stringContaining("could not be saved"),
    ]);
  });

  test("is no error for a generation", async () => {
    writeFileSync(machineFile, "{");
    const { code, err } = await lantern(generate());
    expect(code).toBe(0);
    expect(err).toMatch(/^generation .*tokens\/s .* of the .* limit/m);
  });
});

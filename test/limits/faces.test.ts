// One question, one number: what the command line, the server, the Limits page, the Machine page and a generation's own
// timings say a machine allows a model is the same, because one function answers all of them.

import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { type ModelLibrary, type RunningServer, startServer } from "../../apps/server/serve.ts";
import { type LimitsFacts, limitsView, loadedId } from "../../apps/web/src/state/limits-choice.ts";
import { type LimitsReport, type Model, open } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { madeUpMachine, rememberMadeUpMachine } from "../support/measured-machine.ts";
import { tinyFile } from "../support/tiny-file.ts";

let remembered: Awaited<ReturnType<typeof rememberMadeUpMachine>>;
let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let server: RunningServer;
let facts: LimitsFacts;

beforeAll(async () => {
  remembered = await rememberMadeUpMachine();
  file = await tinyFile({ weightType: "q4_0" });
  model = await open(file.path, { threads: 1, kvType: "q8_0" });
  server = await startServer({
    models: { tiny: model },
    version: "test",
    port: 0,
    graceMs: 0,
    token: false,
    // The only question that is asked of it here.
    library: { locate: async () => file.path } as Partial<ModelLibrary> as ModelLibrary,
    log: () => {},
  });
  const { threads } = model.info.backend;
  const { contextSize } = model.info;
  const report = await overHttp();
  facts = {
    loaded: [{ id: "tiny", threads, contextSize, report, isHere: true }],
    machine: await madeUpMachine(),
  };
});
afterAll(async () => {
  await server?.stop();
  await model?.dispose();
  file?.remove();
  remembered?.forget();
});

async function overHttp(query: string = ""): Promise<LimitsReport> {
  const response = await fetch(`${server.url}/lantern/v1/limits?model=tiny${query}`);
  expect(response.status).toBe(200);
  return (await response.json()) as LimitsReport;
}

async function onCommandLine(...args: string[]): Promise<LimitsReport> {
  const terminal = new FakeTerminal();
  terminal.environment = {};
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: remembered.folder });
  const all = ["limits", file.path, "--json", ...args];
  expect(await main(all, terminal, downloads), terminal.stderr).toBe(0);
  return JSON.parse(terminal.stdout) as LimitsReport;
}

/** Numbers that every face shows; the widths' texts differ, as some are types and some are bits. */
const numbers = ({ decode, prefill, memory, cost, device }: LimitsReport) => ({
  decode,
  prefill,
  memory,
  cost,
  device,
});

test("command line, server and page give the same report of the same model", async () => {
  const context = String(model.info.contextSize);
  const cli = await onCommandLine("-t", "1", "--kv", "q8_0", "-c", context);
  expect(numbers(await overHttp())).toEqual(numbers(cli));
  const page = limitsView({}, facts);
  expect(page.model).toBe(loadedId("tiny"));
  expect(numbers(page.report)).toEqual(numbers(cli));
});

test("also with another width or on another device", async () => {
  const cli = await onCommandLine("-t", "1", "--weights", "8", "--kv", "16", "-c", "256");
  const page = limitsView({ weights: 8, kv: 16, context: 256 }, facts);
  expect(numbers(page.report)).toEqual(numbers(cli));
  const far = await onCommandLine("--device", "rtx4090", "--kv", "q8_0", "-c", "256");
  expect(numbers(await overHttp("&device=rtx4090&context=256"))).toEqual(numbers(far));
  const there = limitsView({ device: "rtx4090", context: 256 }, facts);
  expect(numbers(there.report)).toEqual(numbers(far));
});

test("also of speculation and of many users", async () => {
  const cli = await onCommandLine(
    ...["-t", "1", "--kv", "q8_0", "-c", "64", "--acceptance", "0.9", "--draft", "0.1"],
    ...["--users", "3", "--sla", "500ms,10", "-p", "32", "-n", "16", "--batch", "1000"],
    ...["--price", "2"],
  );
  const choice = { acceptance: 0.9, draft: "0.1", users: 3, firstTokenMs: 500, rate: 10 };
  const page = limitsView({ ...choice, prompt: 32, answer: 16, price: 2, context: 64 }, facts);
  // The page computes limits by itself; what the tune file says is known to the command line only.
  const { here, ...limit } = cli.speculation!;
  expect(here).toBeDefined();
  expect(page.report.speculation).toEqual(limit);
  expect(page.report.serving).toEqual(cli.serving);
});

test("a generation's limit is that of the report at its length", async () => {
  const { timings } = await model.generate("the cat", { maxTokens: 2, temperature: 0 }).result;
  const report = await overHttp();
  const { cost, device } = report;
  // The first token comes with the prompt, the second is token promptTokens + 1 of the text.
  const bytes = cost.weightBytes + cost.rowBytes + (timings.promptTokens + 1) * cost.kvBytes;
  const { work, limits } = timings;
  expect(work.generation.bytes).toBeCloseTo((timings.generatedTokens - 1) * bytes, 3);
  expect(limits!.generation!.resource).toBe("bandwidth");
  expect(limits!.generation!.possiblePerSecond).toBeCloseTo(device.bytesPerSecond, 0);
});

test("/metrics has the share of the limit that the answer itself names", async () => {
  const body = JSON.stringify({ prompt: "the cat", n_predict: 4, temperature: 0 });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${server.url}/completion`, { method: "POST", headers, body });
  const { timings } = (await answer.json()) as {
    timings: { predicted_limit_fraction: number };
  };
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const line = /^lantern_limit_ratio\{[^}]*phase="generation"[^}]*\} (.+)$/m.exec(metrics);
  expect(Number(line?.[1])).toBeCloseTo(timings.predicted_limit_fraction, 6);
});

test("the page opens on what is loaded here; a choice that cannot be had is none", () => {
  expect(limitsView({}, facts)).toMatchObject({ device: "this machine", weights: 0 });
  expect(limitsView({}, facts).storedBits).toBeCloseTo(facts.loaded[0]!.report.model.bits.weights);
  expect(limitsView({ model: "loaded gone" }, facts).model).toBe(loadedId("tiny"));
  const nothing = { loaded: [], machine: null };
  expect(limitsView({}, nothing)).toMatchObject({ model: "qwen2.5-7b", device: "rtx4090" });
  expect(limitsView({ device: "this machine" }, nothing).device).toBe("rtx4090");
  expect(limitsView({ kvHeads: 5, weights: 4 }, facts).kvHeads).toBe(2);
});

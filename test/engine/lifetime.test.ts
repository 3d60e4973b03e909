// What happens to memory and threads: fifty models opened and disposed leave nothing behind, and an engine thread that
// dies takes its requests with it, clearly, and nothing else.

import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { queryObjects } from "node:v8";
import { MessagePort, Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import type { Methods } from "../../src/engine/protocol.ts";
import { Line } from "../../src/engine/rpc.ts";
import { open, WorkerError } from "../../src/index.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { openCycle, settled } from "../support/open-cycles.ts";
import { tinyFile } from "../support/tiny-file.ts";

test("opened and disposed again and again, memory stays flat and nothing else is left", async () => {
  // About 15 MB of weights: ten leaks would be 150 MB.
  const cycles = 10;
  const file = await tinyFile({ feedForward: 20_000 });
  const cycle = () => openCycle(() => open(file.path, { contextSize: 64, threads: 2 }));
  for (let i = 0; i < 4; i++) await cycle(); // allocators and the JIT settle
  const before = await settled();
  const portsBefore = queryObjects(MessagePort, { format: "count" });
  for (let i = 0; i < cycles; i++) await cycle();
  const after = await settled();
  expect((after.resident - before.resident) / 2 ** 20).toBeLessThan(75);
  expect(after.threads).toBe(before.threads);
  expect(after.descriptors).toBe(before.descriptors);
  // Allocators map and unmap as they like; one for each cycle would be a leak.
  expect(after.mappings - before.mappings).toBeLessThan(cycles);
  // Node's main thread has a port for every thread until it is told that the thread has ended.
  expect(queryObjects(MessagePort, { format: "count" }) - portsBefore).toBeLessThan(5);
  file.remove();
}, 400_000);

// The engine's thread starts whatever flags the process was started with.
const starts: [string, (script: string, file: string) => string[]][] = [
  ["a script from the command line", (script) => ["--input-type=module", "-e", script]],
  ["flags that belong to the process", (_, file) => ["--expose-gc", "--title=x", file]],
  [
    "both",
    (script) => ["--max-old-space-size=500", "--expose-gc", "--input-type=module", "-e", script],
  ],
];
for (const [name, args] of starts) {
  test(`forgetting dispose() lets a script end, generating does not let it end early: ${name}`, async () => {
    const file = await tinyFile();
    const script = `
      import { open } from ${JSON.stringify(new URL("../../src/index.ts", import.meta.url).href)};
      const model = await open(${JSON.stringify(file.path)});
      let text = "";
      for await (const piece of model.generate("the", { temperature: 0, maxTokens: 5 })) text += piece;
      console.log(JSON.stringify(text));
    `;
    const scriptFile = `${file.path}.mjs`;
    writeFileSync(scriptFile, script);
    const run = spawnSync(process.execPath, args(script, scriptFile), {
      encoding: "utf8",
      timeout: 120_000,
    });
    expect(run.stderr).toBe("");
    expect(run.status).toBe(0);
    expect(JSON.parse(run.stdout).length).toBeGreaterThan(0);
    file.remove();
  });
}

test("a thread that dies rejects what was running and what comes after", async () => {
  const worker = new Worker("setTimeout(() => process.exit(7), 50)", { eval: true });
  const thread: EngineThread = {
    post: () => {},
    onMessage: () => {},
    onFailure: (listener) =>
      void worker.on("exit", (code) => listener(new Error(`it ended with exit code ${code}`))),
    ref: () => {},
    unref: () => {},
    terminate: async () => void (await worker.terminate()),
  };
  const line = new Line<Methods>(thread);
  const running = line.call("detokenize", { ids: new Int32Array(), special: false });
  await expect(running).rejects.toThrow(WorkerError);
  await expect(running).rejects.toThrow("exit code 7");
  await expect(line.call("detokenize", { ids: new Int32Array(), special: false })).rejects.toThrow(
    "stopped unexpectedly",
  );
  await line.dispose();
});

test("dispose() waits for a thread that has begun to end", async () => {
  // With a GPU it waits for a batch, longer than for a thread that does not answer.
  const said: string[] = [];
  let answer: (message: unknown) => void = () => {};
  const ending: EngineThread = {
    post: (message) => {
      const { id, method } = message as { id: number; method: string };
      if (method !== "dispose") return;
      answer({ id: 0, kind: "ending" });
      setTimeout(() => {
        said.push("answered");
        answer({ id, kind: "result", result: undefined });
      }, 900);
    },
    onMessage: (listener) => {
      answer = listener;
    },
    onFailure: () => {},
    ref: () => {},
    unref: () => {},
    terminate: async () => void said.push("terminated"),
  };
  await new Line<Methods>(ending).dispose();
  expect(said).toEqual(["answered", "terminated"]);
});

test("a thread keeps the process alive while it does work of its own, and counts as idle", async () => {
  // With a GPU: Dawn aborts where a process ends whose thread waits for its device.
  const said: string[] = [];
  let tell: (message: unknown) => void = () => {};
  let asked = 0;
  const working: EngineThread = {
    post: (message) => {
      const { id, method } = message as { id: number; method: string };
      if (method !== "share") said.push(method);
      if (method === "ownWork") asked = id;
      else if (method === "dispose") tell({ id, kind: "result", result: undefined });
    },
    onMessage: (listener) => {
      tell = listener;
    },
    onFailure: () => {},
    ref: () => void said.push("ref"),
    unref: () => void said.push("unref"),
    terminate: async () => {},
  };
  const line = new Line<Methods>(working);
  tell({ id: 0, kind: "hasWork" });
  expect(said).toEqual(["unref", "ref", "ownWork"]);
  expect(line.isIdle).toBe(true);
  tell({ id: asked, kind: "result", result: undefined });
  expect(said.at(-1)).toBe("unref");
  await Promise.resolve();
  tell({ id: 0, kind: "hasWork" });
  await line.dispose(); // nobody hears of the work that is given up
});

test("dispose() does not wait for a thread that is in the middle of something long", async () => {
  let ended = false;
  const busy: EngineThread = {
    post: () => {}, // never answers
    onMessage: () => {},
    onFailure: () => {},
    ref: () => {},
    unref: () => {},
    terminate: async () => {
      ended = true;
    },
  };
  const line = new Line<Methods>(busy);
  const running = expect(
    line.call("detokenize", { ids: new Int32Array(), special: false }),
  ).rejects.toThrow("used after dispose");
  await Promise.all([line.dispose(), line.dispose()]);
  expect(ended).toBe(true);
  await running;
});

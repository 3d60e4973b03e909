// lantern devices: what it says of a GPU, and that it and --backend webgpu say so plainly where there is none.
// Held against: what the adapter says of itself.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { describeGpu } from "../support/gpu.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

async function devices(...flags: string[]): Promise<string> {
  const terminal = new FakeTerminal();
  expect(await main(["devices", ...flags], terminal)).toBe(0);
  return terminal.stdout;
}

interface Ended {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** In a process of its own, which finds no GPU. */
function withoutGpu(...args: string[]): Ended {
  return withGpu("off", ...args);
}

function withGpu(name: string, ...args: string[]): Ended {
  return withEnv({ LANTERN_GPU: name }, ...args);
}

function withEnv(settings: Record<string, string>, ...args: string[]): Ended {
  const bin = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
  const env = { ...process.env, ...settings };
  return spawnSync(process.execPath, [bin, ...args], { encoding: "utf8", env });
}

describeGpu("lantern devices", () => {
  test("names the GPU and what it can do", async () => {
    const text = await devices();
    for (const line of ["name", "driver", "largest binding", "subgroups", "half floats"]) {
      expect(text).toMatch(new RegExp(`^${line} +\\S`, "m"));
    }
  });

  test("--json: the same as one object", async () => {
    const { devices: list } = JSON.parse(await devices("--json")) as {
      devices: Record<string, unknown>[];
    };
    expect(list).toHaveLength(1);
    expect(list[0]).toMatchObject({ name: expect.any(String), f16: expect.any(Boolean) });
    expect(list[0]!.max_binding_bytes).toBeGreaterThanOrEqual(128 * 2 ** 20);
  });
});

describeGpu("LANTERN_GPU", () => {
  test("a name that no GPU has is no failure either, and shows those that there are", () => {
    const { status, stdout } = withGpu("no-such-gpu", "devices");
    expect(stdout).toMatch(/^No GPU: .*Available adapters: .*name: '.+'/);
    expect(status).toBe(0);
  });
});

test("without a GPU: said plainly, and no failure", () => {
  const { status, stdout } = withoutGpu("devices");
  // The machine's adapters are listed all the same.
  expect(stdout).toMatch(
    /^No GPU: LANTERN_GPU=off says to use none\.\n\n(ADAPTER [\s\S]+\n\n)?the machine's memory: .+ of .+ in use\n/,
  );
  expect(status).toBe(0);
  expect(JSON.parse(withoutGpu("devices", "--json").stdout)).toMatchObject({
    devices: [],
    reason: "LANTERN_GPU=off says to use none",
    machine: { memory_bytes: expect.any(Number), available_bytes: expect.any(Number) },
    models: expect.any(Array),
  });
});

test("--backend webgpu without a GPU: one sentence, and what to do", async () => {
  const file = await tinyFile();
  const { status, stderr } = withoutGpu("run", "-m", file.path, "--backend", "webgpu", "-n", "1");
  file.remove();
  expect(stderr).toContain('backend "webgpu": LANTERN_GPU=off says to use none');
  expect(stderr).toContain("lantern devices");
  expect(status).toBe(2);
});

test("-ngl without a GPU: one sentence; auto: the processor, and why", async () => {
  const file = await tinyFile();
  const run = (layers: string, ...flags: string[]) =>
    withoutGpu("run", "-m", file.path, "-p", "cat", "-n", "2", "-ngl", layers, ...flags);
  const asked = run("1");
  const none = run("0");
  const auto = run("auto", "--explain");
  const wrong = run("some");
  file.remove();
  expect(asked.stderr).toContain(
    "--gpu-layers: got 1, but no GPU can be used (LANTERN_GPU=off says to use none), so the processor computes all layers",
  );
  expect(asked.status).toBe(0);
  expect(none.status).toBe(0);
  expect(auto.status).toBe(0);
  expect(auto.stderr).toContain("no layers on a GPU: LANTERN_GPU=off says to use none");
  expect(wrong.stderr).toContain("Expected all, auto or a whole number of at least 0.");
  expect(wrong.status).toBe(2);
});

describeGpu("a GPU without enough memory", () => {
  test("says how many layers would fit; -ngl auto takes them", async () => {
    // The table, which is the output matrix too, takes 128 kB; each layer, with its cache, some 60 kB.
    const file = await tinyFile({ vocab: 1000 });
    const run = (layers: string, ...flags: string[]) =>
      withEnv(
        { LANTERN_GPU: "software", LANTERN_GPU_MEMORY: "0.5" },
        ...["run", "-m", file.path, "-p", "cat", "-n", "1", "-c", "32", "-ngl", layers, ...flags],
      );
    const all = run("all");
    expect(all.status).toBe(5);
    const advice = /(\d) of its 3 layers would fit \(.*\): use --gpu-layers (\d)/.exec(all.stderr);
    expect(advice, all.stderr).not.toBeNull();
    const fitting = advice![2]!;
    expect(run(fitting).status).toBe(0);
    const auto = run("auto", "--explain");
    file.remove();
    expect(auto.stderr).toMatch(/^backend cpu\+webgpu/m);
    expect(auto.stderr).toContain(fitting === "1" ? "the output and no layer" : "layer 1 of 2");
    expect(auto.status).toBe(0);
  });

  test("a size that is none is refused", () => {
    const { status, stderr } = withEnv({ LANTERN_GPU_MEMORY: "much" }, "devices");
    expect(stderr).toContain('LANTERN_GPU_MEMORY: got "much"');
    expect(status).toBe(2);
  });
});

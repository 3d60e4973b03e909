// lantern devices: what it says of a GPU, and that it and --backend webgpu say so plainly where there is none.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { main } from "../../src/cli/main.ts";
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
  const bin = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
  const env = { ...process.env, LANTERN_GPU: name };
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
  expect(stdout).toBe("No GPU: LANTERN_GPU=off says to use none.\n");
  expect(status).toBe(0);
  expect(JSON.parse(withoutGpu("devices", "--json").stdout)).toEqual({
    devices: [],
    reason: "LANTERN_GPU=off says to use none",
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

// The single-file program, built for this machine and started where there is no Node: the same text on the same kernels as
// from the sources, threads and all, and a server with the web app.

import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { checkout } from "./consumer.ts";

const run = promisify(execFile);
const canBuild = process.platform === "linux";
const title = `the single-file program${canBuild ? "" : " [skipped: built and tested on Linux only]"}`;

describe.skipIf(!canBuild)(title, () => {
  let folder: string;
  let program: string;
  let model: string;
  let env: NodeJS.ProcessEnv;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "lantern-sea-"));
    const script = join(checkout, "scripts", "build-sea.ts");
    await run(process.execPath, [script, "--out", folder], { cwd: checkout });
    expect(readdirSync(folder)).toEqual([`lantern-${process.platform}-${process.arch}`]);
    program = join(folder, `lantern-${process.platform}-${process.arch}`);
    const stories = "models/stories260K/stories260K-F32.gguf";
    model = hasShared(stories) ? sharedPath(stories) : join(folder, "tiny.gguf");
    if (!hasShared(stories)) writeFileSync(model, await tinyGguf());
    // No Node anywhere, and nothing of this checkout's.
    env = {
      HOME: folder,
      PATH: "/nonexistent",
      LANTERN_CACHE: join(folder, "cache"),
      LANTERN_DATA: join(folder, "data"),
      LANTERN_NO_LIMIT: "1",
      LANTERN_NO_TUNE: "1",
    };
  }, 900_000);

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("generates the text that the sources generate, on the same kernels", async () => {
    const args = ["run", "-m", model, "-n", "12", "--temp", "0", "--explain"];
    const alone = await run(program, args, { env, cwd: folder });
    const launcher = join(checkout, "bin", "lantern.js");
    const fromSources = await run(process.execPath, [launcher, ...args], { env });
    expect(alone.stdout).toBe(fromSources.stdout);
    const kernels = ({ stderr }: { stderr: string }) => /matmul kernels: .*/.exec(stderr)?.[0];
    expect(kernels(alone)).toBeDefined();
    expect(kernels(alone)).toBe(kernels(fromSources));
  });

  test("knows its version, and says why it has no GPU", async () => {
    const { stdout } = await run(program, ["--version"], { env });
    expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    const refused = await run(program, ["run", "-m", model, "--backend", "webgpu"], { env }).catch(
      (error: { stderr: string }) => error,
    );
    expect(refused.stderr).toContain("the single-file program computes on the processor only");
  });

  test("serves the web app from inside itself, and answers", async () => {
    const server = spawn(program, ["serve", "-m", model, "--port", "0"], { env, cwd: folder });
    try {
      const url = await new Promise<string>((resolve, reject) => {
        let said = "";
        const listen = (text: Buffer) => {
          said += text;
          const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
          if (found) resolve(found[0]);
        };
        server.stdout.on("data", listen);
        server.stderr.on("data", listen);
        server.on("exit", () => reject(new Error(`it ended: ${said}`)));
      });
      const page = await (await fetch(url)).text();
      const script = /src="(\/assets\/[^"]+\.js)"/.exec(page)![1]!;
      expect((await fetch(url + script)).headers.get("content-type")).toContain("javascript");
      const answer = await fetch(`${url}/v1/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ prompt: "Once upon a time", max_tokens: 5, temperature: 0 }),
      });
      expect(await answer.json()).toMatchObject({ usage: { completion_tokens: 5 } });
    } finally {
      server.kill("SIGKILL");
    }
  });
});

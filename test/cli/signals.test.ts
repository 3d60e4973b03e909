// Two signals end the program, whatever it does: the first asks it to finish, the second is the last. Real processes, with
// threads that hang, and a download and a quantization under way.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { DownloadServer, noise } from "../catalog/download-server.ts";
import { until } from "../server/test-server.ts";
import { skippedFor } from "../support/skips.ts";
import { tinyFile } from "../support/tiny-file.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
const preload = pathToFileURL(fileURLToPath(new URL("hang-preload.js", import.meta.url))).href;

let folder: string;
const children: ChildProcess[] = [];
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lantern-signals-"));
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  fs.rmSync(folder, { recursive: true, force: true });
});

function start(args: string[], environment: Record<string, string> = {}) {
  const env = { ...process.env, LANTERN_CACHE: folder, LANTERN_NO_TUNE: "1", ...environment };
  const child = spawn(process.execPath, [launcher, ...args], { env });
  children.push(child);
  const said = { text: "" };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (piece) => {
      said.text += piece;
    });
  }
  const exited = once(child, "exit").then(([code, signal]) => signal ?? code);
  return { child, said, exited };
}

/** More than the time in which two of one kind count as one. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 200));

describe.skipIf(process.platform === "win32")(
  `two signals end it${skippedFor("Windows", process.platform === "win32")}`,
  () => {
    test.each([
      ["loop", "SIGTERM", "SIGTERM"],
      ["call", "SIGTERM", "SIGINT"],
    ] as const)("a server whose engine hangs (%s): %s, %s", async (how, first, second) => {
      const hang = join(folder, "hang");
      const file = await tinyFile();
      const flags = ["--port", "0", "--no-sessions", "--no-web", "-t", "1", "--grace", "0"];
      const { child, said, exited } = start(["serve", "-m", file.path, ...flags], {
        NODE_OPTIONS: `--import=${preload}`,
        LANTERN_TEST_HANG: hang,
        LANTERN_TEST_HANG_IN: how,
      });
      await until("it serves", () => said.text.includes("Ctrl-C stops it"));
      execFileSync("mkfifo", [hang]);
      await until("it hangs", () => fs.existsSync(`${hang}ing`));
      child.kill(first);
      await until("it stops", () => said.text.includes("Stopping"));
      await pause();
      child.kill(second);
      expect([second, 0]).toContain(await exited); // 0: it gave its engine up before that
      file.remove();
    });

    test("a first thread that is busy for good", async () => {
      const module = new URL("../../src/platform/node-cli.ts", import.meta.url).href;
      const source = `import { nodeTerminal } from ${JSON.stringify(module)};
      setInterval(() => {}, 1000);
      nodeTerminal().onInterrupt(() => {
        setTimeout(() => { console.log("busy"); setTimeout(() => { for (;;); }, 10); }, 300);
      });
      console.log("ready");`;
      const child = spawn(process.execPath, ["--input-type=module", "-e", source]);
      children.push(child);
      let said = "";
      child.stdout.on("data", (piece) => {
        said += piece;
      });
      const exited = once(child, "exit");
      await until("it listens", () => said.includes("ready"));
      child.kill("SIGTERM");
      await until("it is busy", () => said.includes("busy"));
      await pause();
      child.kill("SIGTERM");
      expect(await exited).toEqual([null, "SIGTERM"]);
    });

    test("a quantization whose threads hang leaves no unfinished file", async () => {
      const hang = join(folder, "hang");
      execFileSync("mkfifo", [hang]);
      const file = await tinyFile();
      const args = ["quantize", file.path, join(folder, "o.gguf"), "Q8_0", "-t", "2"];
      const { child, exited } = start(args, {
        NODE_OPTIONS: `--import=${preload}`,
        LANTERN_TEST_HANG: hang,
        LANTERN_TEST_HANG_IN: "call",
      });
      const parts = () => fs.readdirSync(folder).filter((name) => name.endsWith(".part"));
      await until("it writes", () => parts().length === 1);
      await until("it hangs", () => fs.existsSync(`${hang}ing`));
      child.kill("SIGTERM");
      await pause();
      expect(parts()).toHaveLength(1);
      child.kill("SIGTERM");
      expect(await exited).toBe("SIGTERM");
      expect(parts()).toEqual([]);
      file.remove();
    });

    test("a download that stands still", async () => {
      const hub = new DownloadServer();
      await hub.start();
      hub.files.set("o/m-GGUF/m-Q8_0.gguf", noise(5_000_000));
      hub.stallAfter = 1_000_000;
      const environment = { HF_ENDPOINT: hub.url };
      const { child, said, exited } = start(["pull", "hf:o/m-GGUF"], environment);
      await until("it downloads", () => said.text.includes("MB"));
      child.kill("SIGTERM");
      await pause();
      child.kill("SIGINT");
      expect(["SIGINT", 130]).toContain(await exited);
      await hub.stop();
    });
  },
);

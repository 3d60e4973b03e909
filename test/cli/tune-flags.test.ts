// lantern tune with wrong flags: each is refused before anything is measured, or downloaded.

import { beforeEach, expect, test, vi } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "./fake-terminal.ts";

beforeEach(() => vi.stubEnv("LANTERN_CACHE", "/nonexistent/lantern-test-cache"));

async function tune(...args: string[]): Promise<{ code: number; err: string }> {
  const terminal = new FakeTerminal();
  terminal.environment = { NO_COLOR: "1" };
  // Whoever measures asks how busy the machine is.
  terminal.load = () => {
    throw new Error("it measures");
  };
  terminal.checkWritable = (path) => {
    return path.startsWith("/no") ? Promise.reject(new Error(`${path}: no`)) : Promise.resolve();
  };
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
  const code = await main(["tune", ...args], terminal, downloads);
  return { code, err: terminal.stderr };
}

test.each([
  [["--shapes", "7b", "--type", "nonsense"], /type: got "nonsense", expected one of f32, .*q4_0/],
  [["--shapes", "7b", "--type", "q4_0,q8_1"], /type: got "q8_1"/],
  [["--shapes", "tinystories-1b"], /shapes: got "tinystories-1b", expected 7b, 13b, 30b, 65b/],
  [["--shapes", "smollm2-135m", "--type", "q4_k"], /q4_k has blocks of 256 values/],
  [["-m", "tinyllama-chat", "--type", "q4_0"], /'--type <name,...>' cannot be used with/],
  [["--shapes", "7b", "--weights", "f16"], /'--weights <type>' cannot be used with/],
  [["-m", "tinyllama-chat", "--weights", "q4_0"], /Allowed choices are f16/],
  [["-m", "tinyllama-chat", "--shapes", "7b"], /'--shapes <name>' cannot be used with/],
  [["--backend", "cpu,nonsense"], /backend: got "nonsense", expected one of cpu, webgpu/],
  [["-t", "0"], /from 1 to 256/],
  [["-t", "1,many"], /from 1 to 256/],
  [["--m-num", "0"], /from 1 to 1024/],
  [["--m-num", "1024", "--m-step", "8"], /--m-step x --m-num = 8192 tokens, expected at most 4096/],
  [["--quick", "--m-num", "2"], /'--quick' cannot be used with/],
  [["--quick", "--full"], /'--quick' cannot be used with/],
  [["--file", "/nowhere/times.txt"], /\/nowhere\/times.txt: no/],
  [["--backend", "cpu,webgpu", "--file", "times.txt"], /--file takes the times of one/],
])("%j", async (args, message) => {
  const { code, err } = await tune(...args);
  expect(err).toMatch(message);
  expect(err).not.toMatch(/it measures|Downloading/);
  expect(code).not.toBe(0);
});

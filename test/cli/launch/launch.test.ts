// lantern launch with a real server of the story model and a client that writes down what it was given: environment, arguments, exit code; what is refused; undo; --list.

import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { main } from "../../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../../src/platform/node-download.ts";
import { until } from "../../server/test-server.ts";
import { FakeTerminal } from "../fake-terminal.ts";

const folder = fs.mkdtempSync(join(tmpdir(), "lantern-launch-"));
const downloads = nodeDownloadPlatform({ LANTERN_CACHE: join(folder, "cache") });
const programs = join(folder, "programs");
const secret = "sk-very-secret-7";
const common = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1", LANTERN_API_KEY: secret };
const serving = new FakeTerminal();
let url: string;
let served: Promise<number>;
let home: string;

/** Writes its arguments, its environment and the list of processes to OUT, and ends with a code. */
const fake = `#!${process.execPath}
const { execFileSync } = require("node:child_process");
const { writeFileSync, readFileSync } = require("node:fs");
const own = readFileSync("/proc/self/cmdline", "latin1").split("\\0");
writeFileSync(process.env.FAKE_OUT, JSON.stringify({ args: process.argv.slice(2), env: process.env, own }));
process.exit(Number(process.env.FAKE_CODE ?? 0));
`;

beforeAll(async () => {
  fs.mkdirSync(programs);
  for (const name of ["claude", "pi", "cline"]) {
    fs.writeFileSync(join(programs, name), fake, { mode: 0o755 });
  }
  serving.environment = { ...common };
  const flags = ["--port", "0", "--threads", "1", "--no-sessions", "--no-web", "-c", "256"];
  served = main(["serve", "-m", "stories15m", ...flags], serving, downloads);
  await until("the server is there", () => serving.stdout.includes("Ctrl-C stops it"));
  url = /served at (\S+)/.exec(serving.stdout)![1]!;
});
afterAll(async () => {
  serving.pressCtrlC();
  await served;
  fs.rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  home = fs.mkdtempSync(join(folder, "home-"));
  process.env.FAKE_OUT = join(home, "out.json");
});

function terminalOf(more: Record<string, string> = {}): FakeTerminal {
  const terminal = new FakeTerminal();
  const own = {
    HOME: home,
    PATH: [programs, "relative"].join(delimiter),
    LANTERN_DATA: join(home, "data"),
  };
  terminal.environment = { ...common, ...own, ...more };
  return terminal;
}
interface Seen {
  args: string[];
  env: Record<string, string>;
  own: string[];
}
const seen = (): Seen => JSON.parse(fs.readFileSync(join(home, "out.json"), "utf8")) as Seen;
const launch = (terminal: FakeTerminal, ...args: string[]): Promise<number> =>
  main(["launch", ...args], terminal, downloads);

test("the client gets address, key and model; its exit code is passed on", async () => {
  const terminal = terminalOf();
  process.env.FAKE_CODE = "7";
  process.env.ANTHROPIC_API_KEY = "somebody's";
  try {
    expect(await launch(terminal, "claude", "stories15m", "--", "-p", "-np", "--yes")).toBe(7);
  } finally {
    delete process.env.FAKE_CODE;
    delete process.env.ANTHROPIC_API_KEY;
  }
  const { args, env, own } = seen();
  expect(args).toEqual(["--model", "stories15m", "-p", "-np", "--yes"]);
  expect(env).toMatchObject({ ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: secret });
  expect(env).not.toHaveProperty("ANTHROPIC_API_KEY");
  expect(own.join(" ")).not.toContain(secret);
  expect(terminal.stdout + terminal.stderr).not.toContain(secret);
  expect(terminal.stderr).toContain(
    "needs a context of 32768 tokens at least, and the running server gives 256",
  );
});

test("what the client was given is what the server takes", async () => {
  expect(await launch(terminalOf(), "claude", "stories15m")).toBe(0);
  const { env } = seen();
  const response = await fetch(`${env.ANTHROPIC_BASE_URL}/v1/messages`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${env.ANTHROPIC_AUTH_TOKEN}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: env.ANTHROPIC_MODEL,
      max_tokens: 2,
      messages: [{ role: "user", content: "Once" }],
    }),
  });
  expect(response.status).toBe(200);
});

test("files are changed after --yes or an answer only, and --undo puts them back", async () => {
  const models = join(home, ".pi", "agent", "models.json");
  fs.mkdirSync(join(models, ".."), { recursive: true });
  const before = '{\n  // mine\n  "providers": {}\n}';
  fs.writeFileSync(models, before);
  const dry = terminalOf();
  expect(await launch(dry, "pi", "stories15m", "--dry-run")).toBe(0);
  expect(dry.stdout).toContain(`change  ${models} (a backup is kept)`);
  expect(dry.stdout).not.toContain(secret);
  const scripted = terminalOf();
  expect(await launch(scripted, "pi", "stories15m")).toBe(2);
  expect(scripted.stderr).toContain("no file of pi was changed");
  expect(scripted.stderr).toContain("--yes");
  const asked = terminalOf();
  Object.assign(asked, { inIsTerminal: true, errIsTerminal: true, script: ["n"] });
  expect(await launch(asked, "pi", "stories15m")).toBe(2);
  expect(asked.stderr).toContain("Change these files? [y/N]");
  expect(fs.readFileSync(models, "utf8")).toBe(before);
  expect(fs.existsSync(join(home, "out.json"))).toBe(false);
  expect(fs.existsSync(join(home, "data"))).toBe(false);
  Object.assign(asked, { script: ["y"] });
  expect(await launch(asked, "pi", "stories15m")).toBe(0);
  expect(seen().env.LANTERN_LAUNCH_KEY).toBe(secret);
  const changed = fs.readFileSync(models, "utf8");
  expect(changed).toContain("// mine");
  expect(changed).toContain(`"baseUrl": "${url}/v1"`);
  expect(changed).not.toContain(secret);
  expect(await launch(terminalOf(), "pi", "stories15m")).toBe(0); // nothing changes, so nothing is asked
  const undo = terminalOf();
  expect(await launch(undo, "pi", "--undo")).toBe(0);
  expect(undo.stderr).toContain(`restored ${models}`);
  expect(fs.readFileSync(models, "utf8")).toBe(before);
  expect(await launch(undo, "pi", "--undo")).toBe(0);
  expect(undo.stderr).toContain("Nothing to undo");
});

test("a file that the client has changed is put back after --yes only", async () => {
  expect(await launch(terminalOf(), "pi", "stories15m", "--yes")).toBe(0);
  const models = join(home, ".pi", "agent", "models.json");
  fs.appendFileSync(models, "// later\n");
  const refused = terminalOf();
  expect(await launch(refused, "pi", "--undo")).toBe(2);
  expect(refused.stderr).toContain("nothing was undone");
  expect(fs.existsSync(models)).toBe(true);
  expect(await launch(terminalOf(), "pi", "--undo", "--yes")).toBe(0);
  expect(fs.existsSync(models)).toBe(false);
});

test("what is refused, and in which words", async () => {
  const refusals: [string[], Record<string, string>, number, string][] = [
    [["clade"], {}, 2, 'unknown client "clade". Did you mean claude'],
    [
      ["codex", "stories15m"],
      {},
      3,
      "Codex CLI is not installed. Install it: npm install -g @openai/codex",
    ],
    [["claude", "stories15m"], { HOME: "" }, 2, "HOME is not set"],
    [["claude", "stories15m"], { HOME: "here" }, 2, 'HOME is "here"'],
    [["claude", "stories15m", "-p"], {}, 2, "unknown option '-p'"],
    [["claude", "stories15m", "more"], {}, 2, 'expected "--" before arguments'],
    [["claude", "none", "--url", url], {}, 3, "does not have none"],
    [["claude", "--url", url], {}, 3, "no model loaded whose chat template knows tools"],
    [["claude", "--url", url], { LANTERN_API_KEY: "" }, 3, "needs an API key. Set LANTERN_API_KEY"],
    [["vscode", "stories15m"], {}, 2, "Visual Studio Code sends no key"],
    [["--undo"], {}, 2, "expected a client"],
  ];
  for (const [args, env, code, words] of refusals) {
    const terminal = terminalOf(env);
    expect(await launch(terminal, ...args), `${args} ${terminal.stderr}`).toBe(code);
    expect(terminal.stderr).toContain(words);
    expect(terminal.stderr).not.toContain("bug in Lantern");
  }
});

test("a damaged configuration is refused before anything is written or started", async () => {
  const file = join(home, ".pi", "agent", "models.json");
  fs.mkdirSync(join(file, ".."), { recursive: true });
  fs.writeFileSync(file, '{"providers": ');
  const terminal = terminalOf();
  expect(await launch(terminal, "pi", "stories15m", "--yes")).toBe(2);
  expect(terminal.stderr).toContain(`${file} is not changed: it is damaged: line 1`);
  expect(fs.readFileSync(file, "utf8")).toBe('{"providers": ');
  expect(fs.existsSync(join(home, "out.json"))).toBe(false);
});

test("--list, and --dry-run --json", async () => {
  const listing = terminalOf();
  expect(await launch(listing, "--list")).toBe(0);
  expect(listing.stdout).toMatch(/^claude +Claude Code +yes/m);
  expect(listing.stdout).toMatch(/^codex +Codex CLI +- .*npm install -g @openai\/codex/m);
  const json = terminalOf();
  expect(await launch(json, "--list", "--json")).toBe(0);
  const listed = JSON.parse(json.stdout) as { name: string; program: string | null }[];
  expect(listed.find(({ name }) => name === "claude")!.program).toBe(join(programs, "claude"));
  expect(listed.find(({ name }) => name === "codex")!.program).toBe(null);
  const dry = terminalOf();
  expect(await launch(dry, "cline", "stories15m", "--dry-run", "--json")).toBe(0);
  expect(JSON.parse(dry.stdout)).toMatchObject({
    client: "cline",
    server: { url, model: "stories15m", contextSize: 256 },
    serve: null,
    args: ["-P", "ollama", "-m", "stories15m"],
  });
  expect(dry.stdout).not.toContain(secret);
});

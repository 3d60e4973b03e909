// What a launch of every client does, held against plans.txt, which was read by people: variables, arguments, files, and no key in what other users can see.

import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Client, Endpoint, Place } from "../../../apps/cli/launch/client.ts";
import { clients } from "../../../apps/cli/launch/clients/table.ts";
import { writeFiles } from "../../../apps/cli/launch/files.ts";
import { makePlan, type Plan, planJson, planText } from "../../../apps/cli/launch/plan.ts";
import { UsageError } from "../../../src/index.ts";

let home: string;
beforeAll(() => {
  home = fs.mkdtempSync(join(tmpdir(), "lantern-launch-plans-"));
});
afterAll(() => fs.rmSync(home, { recursive: true, force: true }));

const server: Endpoint = {
  url: "http://127.0.0.1:8080",
  key: undefined,
  model: "qwen3-8b",
  contextSize: 65_536,
};
const secret = "sk-very-secret-7";

function placeOf({ name }: Client, system: Place["system"]): Place {
  return { home, system, env: () => undefined, join, own: join(home, "own", name) };
}

/** Windows of other systems are planned as there. */
const systemOf = ({ programs }: Client): Place["system"] =>
  programs.length === 0 ? "darwin" : "linux";

function planOf(client: Client, endpoint: Endpoint, args: string[] = []): Plan {
  const start = { client, program: undefined, server: endpoint, serve: undefined, warnings: [] };
  return makePlan(start, args, placeOf(client, systemOf(client)));
}

test("every client's plan", async () => {
  const all = clients.map((client) => `== ${client.name}\n${planText(planOf(client, server))}`);
  await expect(all.join("\n").replaceAll(home, "~")).toMatchFileSnapshot("plans.txt");
});

test("names and other names are different, and everything is said about each", () => {
  const names = clients.flatMap(({ name, aliases = [] }) => [name, ...aliases]);
  expect(new Set(names).size).toBe(names.length);
  // The clients of Ollama's launcher, by its names.
  const ollamas =
    "claude claude-desktop cline codex chatgpt kimi muse copilot droid dsh opencode omp openclaw pi pool hermes hermes-desktop vscode qwen";
  expect(names).toEqual(expect.arrayContaining(ollamas.split(" ")));
  for (const { name, title, summary, install, context } of clients) {
    expect(
      [title, summary, install].every((text) => text.length > 1),
      name,
    ).toBe(true);
    expect(context.least, name).toBeLessThanOrEqual(context.wanted);
  }
});

test.each(clients.map((client) => [client.name, client] as const))(
  "%s: the key is in no argument and not shown; the user's arguments come last",
  (_name, client) => {
    const keyed = { ...server, key: secret };
    let plan: Plan;
    try {
      plan = planOf(client, keyed, ["-p", "it's $HOME"]);
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError); // it can send none, and says so
      expect((error as Error).message).toContain("Start a server without a key");
      return;
    }
    expect(plan.args.join(" ")).not.toContain(secret);
    expect(plan.args.slice(-2)).toEqual(["-p", "it's $HOME"]);
    expect(planText(plan)).not.toContain(secret);
    expect(planText(plan)).toContain(`-p 'it'\\''s $HOME'`);
    expect(JSON.stringify(planJson(plan))).not.toContain(secret);
    const handed = [
      ...Object.values(plan.setup.env ?? {}),
      ...plan.files.map(({ after }) => new TextDecoder().decode(after)),
    ];
    expect(handed.some((text) => text?.includes(secret))).toBe(true);
    // A second launch with the same settings has nothing to write.
    writeFiles(plan.files, { join: (name) => join(home, "records", client.name, name) });
    expect(planOf(client, keyed).files).toEqual([]);
  },
);

test("a key in a file that others can read is warned of", () => {
  const cline = clients.find(({ name }) => name === "cline")!;
  const file = join(home, ".cline", "data", "settings", "providers.json");
  fs.mkdirSync(join(file, ".."), { recursive: true });
  fs.writeFileSync(file, "{}");
  fs.chmodSync(file, 0o644);
  expect(planOf(cline, { ...server, key: secret }).warnings).toEqual([
    `Other users can read ${file} (mode 644), and the server's key is written into it.`,
  ]);
  expect(planOf(cline, server).warnings).toEqual([]);
});

test("Claude Desktop is refused where there is none", () => {
  const client = clients.find(({ name }) => name === "claude-desktop")!;
  expect(() => client.setup(server, placeOf(client, "linux"))).toThrow("lantern launch claude");
});

// lantern serve --models-dir and --models-preset: models of a folder by name, settings for each, SIGHUP, and what is refused.

import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ollama } from "ollama";
import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { request } from "../server/lantern-client.ts";
import { post, until } from "../server/test-server.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-serve-many-"));
const downloads = nodeDownloadPlatform({ LANTERN_CACHE: join(folder, "cache") });
const models = join(folder, "models");
beforeAll(async () => {
  mkdirSync(join(models, "inner"), { recursive: true });
  const one = await tinyFile({ seed: 1 });
  const two = await tinyFile({ seed: 2 });
  copyFileSync(one.path, join(models, "one.gguf"));
  copyFileSync(two.path, join(models, "inner", "two-Q8_0.gguf"));
  copyFileSync(two.path, join(models, "inner", "mmproj-F16.gguf"));
  one.remove();
  two.remove();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Json = Record<string, unknown>;
type Listed = { id: string; status: Json; aliases: string[] };

test("a folder by name, presets, SIGHUP, and Ollama's create", async () => {
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const preset = join(folder, "presets.toml");
  terminal.files.set(
    preset,
    `[defaults]\npredict = 3\n[models.inner]\nalias = "gpt-4o"\nsystem = "Be brief."\n[models.mine]\nmodel = "models/one.gguf"\nctx-size = 64\n`,
  );
  const flags = ["--models-dir", models, "--models-preset", preset, "--models-max", "2"];
  const common = ["--port", "0", "--threads", "1", "--no-token", "--no-sessions"];
  const ended = main(["serve", ...common, ...flags], terminal, downloads);
  await until("the server is there", () => terminal.stdout.includes("Ctrl-C stops it"));
  const url = /served at (\S+)/.exec(terminal.stdout)![1]!;
  const list = async (): Promise<Listed[]> =>
    ((await request(`${url}/v1/models`)) as { data: Listed[] }).data;
  const shown = (await list()).map(({ id, aliases, status }) => [id, ...aliases.slice(1), status]);
  expect(shown).toEqual([
    ["mine", { value: "unloaded" }],
    ["inner", "gpt-4o", { value: "unloaded" }],
    ["one", "one.gguf", { value: "unloaded" }],
  ]);
  expect((await fetch(`${url}/health`)).status).toBe(200);
  const chat = async (model: string): Promise<Json> => {
    const messages = [{ role: "user", content: "the cat" }];
    const body = { model, messages, ignore_eos: true, temperature: 0 };
    return (await (await post(`${url}/v1/chat/completions`, body)).json()) as Json;
  };
  expect(await chat("gpt-4o")).toMatchObject({ model: "inner", usage: { completion_tokens: 3 } });
  const prompt = async (model: string): Promise<unknown> => {
    const body = { model, messages: [{ role: "user", content: "hi" }] };
    return ((await (await post(`${url}/apply-template`, body)).json()) as Json).prompt;
  };
  expect(await prompt("inner")).toBe("<system>Be brief.\n<user>hi\n<assistant>");
  expect(await request(`${url}/props?model=mine`)).toMatchObject({
    default_generation_settings: { n_ctx: 64 },
    model_path: "one.gguf",
  });

  // A wrong file changes nothing; a right one is used from the next request on.
  const before = terminal.files.get(preset)!;
  terminal.files.set(preset, before.replace("64", '"many"'));
  terminal.hangUp();
  await until("it is refused", () => terminal.stderr.includes("stay as they were"));
  expect(terminal.stderr).toContain(
    'presets.toml: models.mine.ctx-size: got "many", expected a whole number from 1 to 16777216',
  );
  expect(await prompt("inner")).toContain("Be brief.");
  terminal.files.set(preset, before.replace("64", "96").replace("brief", "kind"));
  terminal.hangUp();
  await until("it is read", () => terminal.stderr.includes("was read again"));
  expect(await prompt("inner")).toContain("Be kind.");
  await chat("mine");
  expect(await request(`${url}/props?model=mine`)).toMatchObject({
    default_generation_settings: { n_ctx: 96 },
  });

  // Ollama's models of models, in every protocol.
  const ollama = new Ollama({ host: url });
  const parameters = { temperature: 0, num_predict: 2 };
  await ollama.create({ model: "short", from: "inner", system: "Two words.", parameters });
  expect(await prompt("short")).toContain("Two words.");
  expect(await chat("short")).toMatchObject({ model: "short", usage: { completion_tokens: 2 } });
  const about = await ollama.show({ model: "short" });
  expect(about.modelfile).toContain('FROM inner\nSYSTEM """Two words."""');
  expect(about.parameters).toContain("num_predict 2");
  const modelfile = 'FROM one\nPARAMETER num_ctx 48\nTEMPLATE """<{{ messages[0].content }}>"""\n';
  const made = await post(`${url}/api/create`, { name: "odd", modelfile, stream: false });
  expect(await made.json()).toEqual({ status: "success" });
  expect(await prompt("odd")).toBe("<hi>");
  const refused = async (body: object): Promise<unknown> =>
    ((await (await post(`${url}/api/create`, { model: "x", ...body })).json()) as Json).error;
  expect(await refused({ modelfile: "FROM one\nADAPTER ./x.gguf" })).toMatch(/line 2: ADAPTER/);
  expect(await refused({ modelfile: "FROM /etc/passwd" })).toMatch(/not found/);
  expect(await refused({ from: "one", template: "{{ .Prompt }}" })).toMatch(/Go template/);
  expect(await refused({ from: "one", parameters: { top_q: 1 } })).toMatch(/parameters\.top_q/);
  await ollama.delete({ model: "short" });
  await expect(ollama.show({ model: "short" })).rejects.toThrow(/not served here/);
  await expect(ollama.delete({ model: "one" })).rejects.toThrow(
    /not in the cache folder|is loaded/,
  );
  terminal.pressCtrlC();
  expect(await ended).toBe(0);

  // They last: the list has them, and they can be deleted there.
  const listing = async (): Promise<Json[]> => {
    const out = new FakeTerminal();
    expect(await main(["models", "--json"], out, downloads)).toBe(0);
    return (JSON.parse(out.stdout) as Json[]).filter(({ state }) => state === "made");
  };
  expect(await listing()).toMatchObject([{ name: "odd", from: "one", isSeparate: true }]);
  const removing = new FakeTerminal();
  expect(await main(["rm", "odd", "--yes"], removing, downloads)).toBe(0);
  expect(removing.stdout).toBe("odd was deleted\n");
  expect(await listing()).toEqual([]);
});

test("a folder that is none, and a wrong file of presets, are refused at the start", async () => {
  const refusal = async (...flags: string[]): Promise<string> => {
    const terminal = new FakeTerminal();
    terminal.files.set("m.json", '{"models":{"a":{"temp":"hot"}}}');
    expect(await main(["serve", "--port", "0", ...flags], terminal, downloads)).not.toBe(0);
    return terminal.stderr.replaceAll(/\s+/g, " ");
  };
  expect(await refusal("--models-dir", join(folder, "nowhere"))).toMatch(
    /nowhere" cannot be opened/,
  );
  expect(await refusal("--models-preset", "m.json")).toContain(
    'm.json: models.a.temp: got "hot", expected a number of at least 0',
  );
});

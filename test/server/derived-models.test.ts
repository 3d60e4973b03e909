// Models that are made from others with Ollama's own client last over a restart; what is damaged says so by its name, and nothing else
// suffers. The store is the real one, in a folder.

import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ollama } from "ollama";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type RunningServer, type StartOptions, startServer } from "../../apps/server/serve.ts";
import { findBlob, pruneBlobs, writeBlob } from "../../src/catalog/blobs.ts";
import { listMade, removeDerived, writeDerived } from "../../src/catalog/derived.ts";
import { type Model, open } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { adapterGguf } from "../support/adapter-file.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile, tinyFileVocab } from "../support/tiny-file.ts";
import { post } from "./test-server.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let folder = "";
beforeAll(async () => {
  file = await tinyFile({ seed: 1 });
  model = await open(file.path, { threads: 1 });
});
afterAll(async () => {
  await model.dispose();
  file.remove();
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-made-"));
});
const running: RunningServer[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
  rmSync(folder, { recursive: true });
});

interface Started {
  readonly client: Ollama;
  readonly url: string;
  readonly log: string[];
  /** What was derived, by name. */
  readonly derived: Map<string, Derived>;
}

type Derived = Parameters<NonNullable<StartOptions["onDemand"]>["derive"]>[1];

/** A server as `lantern serve` would start it on this cache folder. `isOnDemand`: it opens models by name. */
async function start(more: Partial<StartOptions> = {}, isOnDemand = false): Promise<Started> {
  for (const server of running.splice(0)) await server.stop();
  const platform = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const log: string[] = [];
  const derived = new Map<string, Derived>();
  const onDemand: NonNullable<StartOptions["onDemand"]> = {
    list: async () =>
      [...derived.keys()].map((id) => ({ id, aliases: [], file: "tiny.gguf", bytes: 9 })),
    open: (id) => open(file.path, { threads: 1, adapters: derived.get(id)?.adapters ?? [] }),
    needs: async () => 0,
    preset: () => undefined,
    aliased: () => undefined,
    derive: async (id, one) => void derived.set(id, one),
    forget: (id) => derived.delete(id),
    version: () => "",
  };
  const server = await startServer({
    ...{ models: { base: model }, version: "test", port: 0, graceMs: 200, token: false },
    log: (line) => log.push(line),
    derivedStore: {
      list: () => listMade(platform),
      write: (made) => writeDerived(made, platform),
      remove: (name) => removeDerived(name, platform),
      findBlob: (digest) => findBlob(digest, platform),
      writeBlob: (digest, bytes) => writeBlob(digest, bytes, platform),
      pruneBlobs: (named) => pruneBlobs(named, platform),
    },
    ...(isOnDemand && { onDemand }),
    ...more,
  });
  running.push(server);
  return { client: new Ollama({ host: server.url }), url: server.url, log, derived };
}

const files = (): string[] => readdirSync(join(folder, "made")).toSorted();
const names = async (client: Ollama): Promise<string[]> =>
  (await client.list()).models.map(({ name }) => name).toSorted((a, b) => (a < b ? -1 : 1));
const error = async (response: Promise<Response>): Promise<unknown> =>
  ((await (await response).json()) as { error: unknown }).error;

test("what was created and copied answers after a restart, and what was deleted does not", async () => {
  const first = await start();
  const parameters = { temperature: 0, num_predict: 2, stop: ["x", "\n"] };
  const system = 'Be "brief".\nVery.';
  await first.client.create({ model: "Mine/a b:1", from: "base", system, parameters });
  await first.client.copy({ source: "Mine/a b:1", destination: "copy" });
  await first.client.copy({ source: "base", destination: "gone" });
  await first.client.delete({ model: "gone" });
  const shown = await first.client.show({ model: "copy" });
  expect(files()).toEqual(["%4dine%2fa%20b%3a1.json", "copy.json"]);

  const again = await start();
  expect(await names(again.client)).toEqual(["Mine/a b:1", "base", "copy"]);
  expect(await again.client.show({ model: "copy" })).toEqual(shown);
  expect(shown.modelfile).toContain(`SYSTEM """${system}"""`);
  expect(shown.parameters).toContain('stop "\\n"');
  const answer = await again.client.generate({ model: "copy:latest", prompt: "the cat" });
  expect(answer.eval_count).toBeLessThanOrEqual(2);
  await again.client.delete({ model: "Mine/a b:1" });
  await again.client.create({ model: "copy", from: "base", parameters: { num_predict: 7 } });

  const last = await start();
  expect(await names(last.client)).toEqual(["base", "copy"]);
  expect((await last.client.show({ model: "copy" })).parameters).toBe("num_predict 7");
  expect(last.log).toEqual([]);
});

test("a damaged file is the problem of its model only, which says so until it is deleted or made again", async () => {
  const first = await start();
  for (const name of ["good", "cut", "odd"])
    await first.client.copy({ source: "base", destination: name });
  const cut = join(folder, "made", "cut.json");
  writeFileSync(cut, readFileSync(cut, "utf8").slice(0, 30));
  const odd = join(folder, "made", "odd.json");
  const changed = readFileSync(odd, "utf8").replace(
    '"parameters": {}',
    '"parameters": {"top_q": 1}',
  );
  writeFileSync(odd, changed);
  writeFileSync(join(folder, "made", "half.json.99.part"), "{"); // a write that was cut off

  const again = await start();
  expect(await names(again.client)).toEqual(["base", "good"]);
  const ask = { prompt: "the cat", max_tokens: 1 };
  const asking = error(post(`${again.url}/v1/completions`, { model: "cut", ...ask }));
  expect(await asking).toMatchObject({
    code: "model_unusable",
    message: expect.stringMatching(/"cut".*cut\.json: it is not JSON.*delete it with/),
  });
  await expect(again.client.generate({ model: "odd", prompt: "x" })).rejects.toThrow(
    /"odd".*parameters\.top_q/,
  );
  expect(again.log).toHaveLength(2);
  await again.client.delete({ model: "cut" });
  await again.client.copy({ source: "base", destination: "odd" });
  expect((await start()).log).toEqual([]);
  expect(files()).toEqual(["good.json", "half.json.99.part", "odd.json"]);
});

test("one with a template of its own is opened beside the original, and needs a server that opens models", async () => {
  const first = await start({}, true);
  const template = "<{{ messages[0].content }}>";
  await first.client.create({ model: "own", from: "base", template });
  await first.client.copy({ source: "own", destination: "copied" });
  await first.client.create({ model: "own", from: "base", template: `${template}!` });
  expect(first.derived.get("own")).toMatchObject({ of: "base", template: `${template}!` });
  const again = await start({}, true);
  expect(again.derived.get("copied")).toMatchObject({ of: "base", template });
  expect((await again.client.show({ model: "own" })).modelfile).toContain(
    `TEMPLATE """${template}!"""`,
  );
  await again.client.delete({ model: "copied" });
  expect([...again.derived.keys()]).toEqual(["own"]);
  const fixed = await start();
  await expect(fixed.client.generate({ model: "own", prompt: "x" })).rejects.toThrow(
    /"own".*loads no models by their names/,
  );
});

test("one whose original is not served is not answered for by another model", async () => {
  const first = await start();
  await first.client.copy({ source: "base", destination: "copy" });
  const again = await start({ models: { other: model } });
  await expect(again.client.generate({ model: "copy", prompt: "x" })).rejects.toThrow(
    /made from "base", which is not served/,
  );
  expect(await names(again.client)).toEqual(["other"]);
});

test("what cannot be stored is refused, and not served either", async () => {
  const { client } = await start();
  const long = "a".repeat(300);
  await expect(client.copy({ source: "base", destination: long })).rejects.toThrow(/too long/);
  writeFileSync(join(folder, "made"), "a file in the way");
  await expect(client.copy({ source: "base", destination: "x" })).rejects.toThrow();
  expect(await names(client)).toEqual(["base"]);
});

test("an adapter is uploaded once, and the model that is made with it has it after a restart", async () => {
  const { tensors } = tinyModel({ vocab: tinyFileVocab });
  const bytes = new Uint8Array(await adapterGguf(tensors, { seed: 3, size: 2 }));
  const hex = createHash("sha256").update(bytes).digest("hex");
  const digest = `sha256:${hex}`;
  const first = await start({}, true);
  const blob = `${first.url}/api/blobs/${digest}`;
  expect((await fetch(blob, { method: "HEAD" })).status).toBe(404);
  const missing = { model: "early", from: "base", adapters: { "a.gguf": digest } };
  await expect(first.client.create(missing)).rejects.toThrow(/its adapter sha256:.* is not here/);
  const wrong = `sha256:${"0".repeat(64)}`;
  const upload = { method: "POST", body: bytes };
  expect(await (await fetch(`${first.url}/api/blobs/${wrong}`, upload)).text()).toContain(
    `with the digest ${digest}`,
  );
  expect((await fetch(`${first.url}/api/blobs/${encodeURIComponent("../a")}`, upload)).status).toBe(
    400,
  );
  expect(readdirSync(join(folder, "blobs"))).toEqual([]);
  expect((await fetch(blob, upload)).status).toBe(201);
  expect((await fetch(blob, { method: "HEAD" })).status).toBe(200);
  expect(readdirSync(join(folder, "blobs"))).toEqual([`sha256-${hex}`]);
  await first.client.create({ ...missing, model: "mine" });
  const modelfile = `FROM mine\nADAPTER @${digest}\nPARAMETER num_predict 4`;
  await post(`${first.url}/api/create`, { model: "filed", modelfile });
  expect((await first.client.show({ model: "filed" })).modelfile).toContain(`ADAPTER ${digest}\n`);
  const byPath = post(`${first.url}/api/create`, {
    model: "p",
    modelfile: "FROM base\nADAPTER ./a",
  });
  expect(await error(byPath)).toMatch(/line 2: ADAPTER: got "\.\/a", expected the digest/);

  const again = await start({}, true);
  const adapters = [join(folder, "blobs", `sha256-${hex}`)];
  expect(again.derived.get("mine")).toMatchObject({ of: "base", adapters });
  const ask = { prompt: "the cat", options: { temperature: 0, num_predict: 8 }, raw: true };
  const plain = await again.client.generate({ model: "base", ...ask });
  const mine = await again.client.generate({ model: "mine", ...ask });
  expect(mine.response).not.toBe(plain.response);
  rmSync(adapters[0]!);
  expect((await start({}, true)).log.join()).toMatch(/"mine" is not served: its adapter sha256:/);
});

test("uploads that no model names are deleted after a day", async () => {
  const platform = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const digests = ["a", "b"].map((text) => createHash("sha256").update(text).digest("hex"));
  for (const [i, text] of ["a", "b"].entries()) {
    const bytes = new Response(text).body!;
    await writeBlob(`sha256:${digests[i]}`, bytes, platform);
  }
  const named = new Set([`sha256:${digests[0]}`]);
  await pruneBlobs(named, platform);
  expect(readdirSync(join(folder, "blobs"))).toHaveLength(2);
  await pruneBlobs(named, platform, Date.now() + 25 * 3600 * 1000);
  expect(readdirSync(join(folder, "blobs"))).toEqual([`sha256-${digests[0]}`]);
});

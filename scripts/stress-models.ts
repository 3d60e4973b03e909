// npm run stress:models -- [ROUNDS] [SEED] [PART...]: a real `lantern serve --models-dir ... --models-preset ...` loads and unloads models while
// clients stream from all of them, and its file of presets is changed (SIGHUP), sometimes to a broken one. Every answer must equal the model's
// text when it runs alone, and memory must come back. And servers that are ended (SIGTERM) while a model is loaded.
//
// Parts: traffic, term (default: both). Prints a table; the exit code is 1 after any error.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { open } from "../src/index.ts";
import { memoryMib, type Started, startLantern, stop } from "../test/cluster/processes.ts";
import { Random } from "../test/support/random.ts";
import { tinyGguf } from "../test/support/tiny-file.ts";
import { beginStress, Findings, postOf, pause as sleep } from "./stress-harness.ts";

const stress = beginStress("stress:models -- [ROUNDS] [SEED] [PART...]", { count: 200, seed: 1 });
const { count: rounds, seed, random, folder } = stress;
const findings = new Findings();
const models = join(folder, "models");
const preset = join(folder, "presets.toml");
mkdirSync(models);
const ids = ["ant", "bee", "cat", "dog", "elk"];
const prompt = "the cat sat";
const maxTokens = 24;
const alone = new Map<string, string>();
for (const [at, id] of ids.entries()) {
  const path = join(models, `${id}.gguf`);
  writeFileSync(path, await tinyGguf({ seed: at + 1 }));
  await using model = await open(path, { threads: 1, tuned: false });
  const asked = { maxTokens, temperature: 0, ignoreEos: true };
  alone.set(id, (await model.generate(prompt, asked).result).text);
}
const settings = (size: number): string =>
  `[defaults]\nctx-size = ${size}\n[models.ant]\nalias = "first"\n[models.bee]\npinned = true\n`;
writeFileSync(preset, settings(256));

async function serve(): Promise<Started> {
  const args = ["serve", "--models-dir", models, "--models-preset", preset, "--models-max", "2"];
  const own = ["--no-web", "--no-sessions", "--no-batches", "--no-token", "--port", "0"];
  return await startLantern([...args, ...own, "--threads", "1"]);
}

const rssOf = (server: Started): number => Math.round(memoryMib(server)!);

/** A streamed answer; undefined: the server refused it, with a reason that clients can act upon. */
async function ask(url: string, id: string, signal?: AbortSignal): Promise<string | undefined> {
  const fields = { max_tokens: maxTokens, temperature: 0, ignore_eos: true, stream: true };
  const response = await fetch(`${url}/v1/completions`, {
    ...postOf({ model: id, prompt, ...fields }),
    ...(signal && { signal }),
  });
  const text = await response.text();
  if (response.status !== 200) {
    const { code } = (JSON.parse(text) as { error: { code: string } }).error;
    if (["model_load_stopped", "queue_full"].includes(code)) return undefined;
    throw new Error(`${response.status} ${text.slice(0, 200)}`);
  }
  const events = text.split("\n\n").filter((one) => one.startsWith("data: {"));
  return events
    .map((one) => JSON.parse(one.slice(6)) as { choices: { text: string }[] })
    .map(({ choices }) => choices[0]?.text ?? "")
    .join("");
}

async function traffic(): Promise<void> {
  const server = await serve();
  const url = server.ready.url as string;
  const wrong: string[] = [];
  let answers = 0;
  let refused = 0;
  let left = 0;
  let isOver = false;
  const client = async (at: number): Promise<void> => {
    const own = new Random(seed * 100 + at);
    while (!isOver) {
      const id = own.pick(ids);
      const leave = own.unit() < 0.1 ? AbortSignal.timeout(own.below(60)) : undefined;
      try {
        const text = await ask(url, id, leave);
        if (text === undefined) refused++;
        else if (text === alone.get(id)) answers++;
        else wrong.push(`${id}: ${JSON.stringify(text)}`);
      } catch (error) {
        if (leave?.aborted) left++;
        else wrong.push(`${id}: ${String(error)}`);
      }
    }
  };
  const clients = [0, 1, 2, 3].map(client);
  let acts = 0;
  let read = 0;
  let broken = 0;
  const sizes: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const path = random.unit() < 0.5 ? "/models/load" : "/models/unload";
    const response = await fetch(`${url}${path}`, postOf({ model: random.pick(ids) }));
    await response.text();
    if (response.status >= 500) wrong.push(`${path}: ${response.status}`);
    acts++;
    if (round % 10 === 5) {
      writeFileSync(preset, settings(random.pick([128, 256, 320])));
      server.child.kill("SIGHUP");
      read++;
    }
    if (round % 10 === 9) {
      writeFileSync(preset, random.pick(["[models", '[defaults]\nctx-size = "many"\n', "[x]\n"]));
      server.child.kill("SIGHUP");
      broken++;
    }
    if (round % Math.max(1, Math.floor(rounds / 10)) === 0) sizes.push(rssOf(server));
    await sleep(random.below(120));
  }
  isOver = true;
  await Promise.all(clients);
  for (const id of ids) {
    await (await fetch(`${url}/models/unload`, postOf({ model: id }))).text();
  }
  await sleep(1000);
  sizes.push(rssOf(server));
  const health = (await fetch(`${url}/health`)).status;
  if (health !== 200) wrong.push(`health ${health}`);
  if (wrong.length > 0)
    console.error(server.said.filter((line) => !line.startsWith("POST")).join("\n"));
  const half = Math.floor(sizes.length / 2);
  const grown = sizes.at(-1)! - Math.max(...sizes.slice(0, half));
  if (grown > 100) wrong.push(`memory grew by ${grown} MB: ${sizes.join(", ")}`);
  const code = await stop(server);
  if (code !== 0) wrong.push(`exit code ${code}: ${server.said.join("\n")}`);
  const facts = `${acts} loads and unloads, ${read} SIGHUP with a good file, ${broken} with a broken one`;
  findings.add(
    [
      `${facts}, 4 clients that stream`,
      `${answers} answers, ${refused} refused because somebody unloaded, ${left} left; ${sizes.join(", ")} MB`,
    ],
    wrong,
  );
}

/** Processes whose parent is this one. */
function childrenOf(parent: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "utf8");
        return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === parent;
      } catch {
        return false;
      }
    })
    .map(Number);
}

async function term(): Promise<void> {
  const wrong: string[] = [];
  const times = Math.min(rounds, 12);
  let cut = 0;
  for (let round = 0; round < times; round++) {
    const server = await serve();
    const url = server.ready.url as string;
    const asking = ids.map((id) => ask(url, id).catch(() => void cut++));
    await sleep(random.below(60));
    const children = childrenOf(server.child.pid!);
    const late = sleep(30_000).then(() => "none within 30 s");
    const code = await Promise.race([stop(server), late]);
    if (code !== 0) wrong.push(`exit code ${code}: ${server.said.join("\n")}`);
    await Promise.all(asking);
    const orphans = children.filter((pid) => childrenOf(1).includes(pid));
    if (orphans.length > 0) wrong.push(`${orphans.length} processes are left`);
  }
  findings.add(
    [
      `SIGTERM while models are loaded, ${times} servers`,
      `all end with 0; ${cut} of ${times * ids.length} requests were cut off`,
    ],
    wrong,
  );
}

const withPresets = (part: () => Promise<void>) => async () => {
  writeFileSync(preset, settings(256));
  await part();
};
await findings.run(stress, ["what", "came of it"], {
  ...{ traffic: withPresets(traffic), term: withPresets(term) },
});
process.exit(); // a timer of a server that has ended must not keep it

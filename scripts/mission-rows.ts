// The 32 rows of docs/mission.md: one command each on small models, and the line of its output that shows the row. mission.ts runs
// them, and test/docs/mission.test.ts those that need no GPU.

/** The models and files for the commands. */
export interface MissionFiles {
  /** A GGUF model of some kilobytes. */
  readonly tiny: string;
  /** One of that size whose feed-forward networks have a ReLU. */
  readonly relu: string;
  /** A Hugging Face folder of that size. */
  readonly folder: string;
  /** A text to score. */
  readonly text: string;
  /** A file of `lantern tune`. */
  readonly tune: string;
  /** A folder for written files. */
  readonly out: string;
}

export interface MissionRow {
  readonly row: string;
  /** The arguments of `lantern`. */
  command(files: MissionFiles): string;
  /** The line that shows it. */
  readonly shows: RegExp;
  /** For `serve`: the request to the server; the line is one of the answer's, as text. */
  ask?(url: string): Promise<string>;
  /** The command that runs first, for the files that it stores. */
  before?(files: MissionFiles): string;
  /** The command takes minutes: a test that shows the row instead, by a part of its title. */
  readonly instead?: { readonly test: string; readonly title: string };
  /** Needs a GPU, or a software adapter. */
  readonly gpu?: true;
  /** This machine's speed is measured first. */
  readonly measures?: true;
}

/** The npm story model, which is installed with Lantern. */
const story = "stories15m";
const article = "limits qwen1.5-7b --device rtx4090-article --article";
const few = "-N 1024 -K 1024 -M 32 -r 1 --seconds 0.02";
const local = "--port 0 --no-token -t 1 -c 256";

async function post(url: string, body: object): Promise<Record<string, unknown>> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return (await answer.json()) as Record<string, unknown>;
}

export const missionRows: readonly MissionRow[] = [
  {
    row: "L1",
    command: () => `run -m ${story} -p Once -n 8 --temp 0`,
    shows: /^generation time +8 +tokens.*/m,
  },
  {
    row: "L2",
    command: () => `bench matmul --seed-table -t 1 ${few}`,
    shows: /^opt level 3 : 1 .*/m,
  },
  {
    row: "L3",
    command: () => `bench matmul --type f32,q4_1 -t 1 ${few}`,
    shows: /^opt level 4 .*/m,
  },
  {
    row: "L4",
    command: ({ tiny }) => `run -m ${tiny} -n 1 --explain`,
    shows: /^ *matmul kernels: .*/m,
  },
  {
    row: "L5",
    command: () => `bench matmul --type f32,q4_1 -t 1 ${few}`,
    shows: /^opt level \d : 1 .*/m,
  },
  {
    row: "L6",
    command: ({ folder, out }) => `quantize ${folder} ${out}/mission.gguf Q8_0 --pure`,
    shows: /^.*Q8_0, .* -> .*/m,
  },
  {
    row: "R1",
    command: ({ folder }) => `run -m ${folder} -n 8 --top-p 0.8 --top-k 30 --temp 1 --seed 1`,
    shows: /^generation time.*/m,
  },
  {
    row: "R2",
    command: ({ tiny }) => `run -m ${tiny} -n 1 --weights f16 --explain`,
    shows: /^.*matrices held as f16.*/m,
  },
  {
    row: "R3",
    command: ({ tiny }) => `serve --story-model ${story} --chat-model ${tiny} ${local}`,
    ask: async (url) => {
      const { data } = (await (await fetch(`${url}/v1/models`)).json()) as {
        data: { id: string }[];
      };
      return `models: ${data.map(({ id }) => id).join(", ")}`;
    },
    shows: /^models: .+, .+/m,
  },
  {
    row: "R4",
    command: () => `serve -m ${story} ${local}`,
    ask: async (url) => {
      const made = await post(`${url}/lantern/v1/sessions`, { mode: "story", title: "A tale" });
      const list = await (await fetch(`${url}/lantern/v1/sessions`)).text();
      return `saved: ${JSON.stringify(made)} of ${list}`.slice(0, 200);
    },
    shows: /^saved: .*A tale.*/m,
  },
  {
    row: "R5",
    command: () => `serve -m ${story} ${local}`,
    ask: async (url) => {
      const prompt = "Once upon a time there was a little girl who lived in a house by the sea.";
      const past = { prompt, n_predict: 4, temperature: 0, cache_prompt: true };
      await post(`${url}/completion`, past);
      const again = await post(`${url}/completion`, { ...past, prompt: `${prompt} One day` });
      const { cache_n, prompt_n } = again.timings as Record<string, number>;
      return `timings: ${JSON.stringify({ cache_n, prompt_n })}`;
    },
    shows: /^timings: .*"cache_n":[1-9]\d*.*/m,
  },
  {
    row: "R6",
    command: ({ tiny }) => `run -m ${tiny} -n 1 --explain --isa wasm`,
    shows: /^ *matmul kernels: WebAssembly \(isa wasm.*/m,
  },
  { row: "T1", command: () => article, shows: /^active +7098728448 .*/m },
  { row: "T2", command: () => article, shows: /^fit in 24\.00 GiB +22072 tokens/m },
  { row: "T3", command: () => article, shows: /^turning points +113 .*481.*/m },
  {
    row: "T4",
    command: () => `run -m ${story} -p Once -n 8 --temp 0`,
    shows: /^generation time.*% of the .*limit.*/m,
    measures: true,
  },
  {
    row: "T5",
    command: () =>
      "limits llama-3-70b --device h100-sxm --weights 4 --draft llama-3-8b --acceptance 0.8",
    shows: /^.*2\.31 times as fast.*/m,
  },
  {
    row: "T6",
    command: () =>
      "limits qwen1.5-7b --device rtx4090 --users 8 --sla 2s,20 --batch 1000 --price 0.5",
    shows: /^at most +153 users.*/m,
  },
  {
    row: "T7",
    command: ({ text }) => `perplexity -m ${story} -f ${text} -c 64 --chunks 1`,
    shows: /^.*perplexity.*\d.*/im,
  },
  { row: "N1", command: () => "devices", shows: /^(?:name +|No GPU).*/m },
  {
    row: "N2",
    command: () => `run -m ${story} -p Once -n 16 --temp 0 -ngl 3 --exact`,
    shows: /^generation time.*/m,
    gpu: true,
  },
  {
    row: "N3",
    command: ({ tiny }) => `verify -m ${tiny} --backends cpu --tokens 4`,
    shows: /^.*every op is within.*/m,
  },
  {
    row: "N4",
    command: ({ tiny }) => `run -m ${tiny} -n 2 --profile`,
    shows: /^engine +read file.*/m, // of the table with the document's columns
  },
  { row: "N5", command: () => "devices", shows: /^the machine's memory: .*/m },
  {
    row: "N6",
    command: () => `run -m ${story} -p Once -n 8 --temp 0 --backend webgpu`,
    shows: /^generation time.*/m,
    gpu: true,
  },
  {
    row: "N7",
    command: ({ relu }) => `run -m ${relu} -n 1 --sparse on --explain`,
    shows: /^.*rows whose gate .* is above zero.*/m,
  },
  {
    row: "M1",
    command: ({ tiny }) => `tune -m ${tiny} --tokens 1,8 -t 1 --quick --force`,
    shows: /^ +8 +\S+ +[\d.]+ us.*/m,
  },
  {
    row: "M2",
    command: ({ tiny, out }) =>
      `tune -m ${tiny} --tokens 1 -t 1 --quick --force --file ${out}/tune.txt`,
    shows: /^.*tune\.txt.*/m,
  },
  {
    row: "M3",
    before: ({ tiny }) => `tune -m ${tiny} --tokens 1,8 -t 1 --quick --force`,
    command: ({ tiny }) => `run -m ${tiny} -n 1 -t 1 --explain`,
    shows: /^ +\S+: 1 token [\d.]+ us.*/m,
  },
  { row: "M4", command: ({ tune }) => `tune analyze ${tune}`, shows: /^ *crossovers: .*/m },
  {
    row: "M5",
    command: () => `tune -m ${story}`,
    shows: /^With \d+ threads that sleep.*/m,
    instead: { test: "test/tune/run-tune.test.ts", title: 'idle === "sleep"' },
  },
  {
    row: "M6",
    command: () => `serve -m ${story}`,
    shows: /tuned/,
    instead: { test: "test/cli/first-tune.test.ts", title: "tunes silently, and remembers it" },
  },
];

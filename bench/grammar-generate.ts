// Generation speed with and without a grammar, of Lantern and, where it is installed, of llama.cpp (llama-cpp.ts). Not a test: it
// asserts nothing.
//
//   npm run bench:grammar-generate -- MODEL.gguf [-t 2] [-n 48] [-r 5] [--no-force] [--json]
//
// All take turns: free, with the same GBNF grammar of JSON objects and, in Lantern, with the grammar of an answer that may call tools
// (`tool_choice` auto: free text up to the mark of a call), greedy, as many tokens each. Medians; the load of the machine is printed
// before and after. --no-force: also tokens without an alternative are computed one by one. `sample` is the part of a token's time that is spent between its logits and the next batch: waiting
// for the mask, if it is not there yet, forbidding, choosing.

import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { open, toolGrammar } from "../src/index.ts";
import { type Llama, llamaWithGrammar, loadLlama } from "./llama-cpp.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", short: "t", default: "2" },
    predict: { type: "string", short: "n", default: "48" },
    repetitions: { type: "string", short: "r", default: "5" },
    "no-force": { type: "boolean" },
    json: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  },
});
const [path] = positionals;
if (path === undefined || values.help) {
  console.log(
    "npm run bench:grammar-generate -- MODEL.gguf [-t THREADS] [-n TOKENS] [-r ROUNDS] [--no-force] [--json]\n" +
      "For example: LANTERN_PEERS=DIR npm run bench:grammar-generate -- model.gguf -t 2",
  );
  process.exit(values.help ? 0 : 2);
}

/** So many objects that no run comes to their end. */
const gbnf = String.raw`root ::= "[" (item ",\n"){400} item "]"
item ::= "{\"name\": " string ", \"tags\": [" string (", " string){0,3} "], \"value\": " number "}"
string ::= "\"" [^"\\\x00-\x1F]{0,24} "\""
number ::= "-"? [0-9]{1,6} ("." [0-9]{1,3})?`;

const weather = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" }, unit: { enum: ["C", "F"] } },
  required: ["city"],
};
/** Calls as Qwen and many others write them; the model below writes none, as in most answers. */
const auto = toolGrammar({
  format: {
    reasoning: { start: "<think>", end: "</think>" },
    calls: {
      section: { start: "", end: "" },
      call: { start: "<tool_call>\n", end: "\n</tool_call>" },
      separator: "\n",
      gap: "\n",
      form: {
        kind: "json",
        nameKey: "name",
        argumentsKey: "arguments",
        idKey: undefined,
        innerKey: undefined,
        isList: false,
      },
      endsReasoning: false,
    },
    turnEnds: [],
  },
  tools: ["weather", "forecast", "search"].map((name) => ({ name, parameters: weather })),
  isForced: false,
  isParallel: true,
  start: { reasoning: "unknown", opening: "" },
})!;

type Kind = "free" | "grammar" | "tools";

const prompt = "A list of animals as JSON:\n";
const threads = Number(values.threads);
const maxTokens = Number(values.predict);

/** Tokens per second; `sampleUs`: microseconds of each token that sampling takes. */
interface Run {
  readonly speed: number;
  readonly sampleUs?: number;
}

type Contestant = (kind: Kind) => Promise<Run>;

const contestants = new Map<string, Contestant>();
const model = await open(path, { threads, contextSize: 1024, speculate: false });
contestants.set("lantern", async (kind) => {
  const grammar = { free: undefined, grammar: gbnf, tools: auto }[kind];
  const forceTokens = !values["no-force"];
  const options = { temperature: 0, ignoreEos: true, maxTokens, cachePrompt: false, forceTokens };
  const { timings } = await model.generate(prompt, { ...options, ...(grammar && { grammar }) })
    .result;
  const { generatedTokens, generatedMs, sampledTokens, sampleMs } = timings;
  if (generatedTokens !== maxTokens) throw new Error(`only ${generatedTokens} tokens`);
  // The first token comes from the prompt's logits.
  const speed = ((generatedTokens - 1) * 1000) / generatedMs;
  return { speed, sampleUs: (sampleMs * 1000) / sampledTokens };
});
const llama: Llama | undefined = await loadLlama().catch(() => undefined);
const peer = llama && (await llamaWithGrammar(llama, path, threads, 1024));
if (peer) {
  contestants.set("llama.cpp", async (kind) => ({
    speed: await peer.generate(prompt, maxTokens, kind === "grammar" ? gbnf : undefined),
  }));
} else console.error("llama.cpp: not installed; LANTERN_PEERS names a folder with node-llama-cpp");

const before = loadavg()[0]!;
const runs = new Map<string, Run[]>();
for (let round = -1; round < Number(values.repetitions); round++) {
  for (const [name, run] of contestants) {
    const kinds: Kind[] = name === "lantern" ? ["free", "grammar", "tools"] : ["free", "grammar"];
    for (const kind of round % 2 === 0 ? kinds : kinds.reverse()) {
      const at = round < 0 ? "warming up" : `round ${round + 1}`;
      if (process.stderr.isTTY) process.stderr.write(`\r${at}: ${name}, ${kind} `.padEnd(40));
      const result = await run(kind);
      // The first round warms up: it makes masks that later ones find.
      const key = `${name} ${kind}`;
      if (round >= 0) runs.set(key, [...(runs.get(key) ?? []), result]);
      else if (kind === "grammar") runs.set(`${name} first`, [result]);
    }
  }
}
const load = { before, after: loadavg()[0]! };
await peer?.dispose();
await model.dispose();

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN;
}

const table = [...contestants.keys()].map((name) => {
  const of = (kind: string): Run[] => runs.get(`${name} ${kind}`) ?? [];
  const speed = (kind: string): number => median(of(kind).map((run) => run.speed));
  const sample = (kind: string): number =>
    median(of(kind).map((run) => run.sampleUs ?? Number.NaN));
  return {
    name,
    free: speed("free"),
    grammar: speed("grammar"),
    first: speed("first"),
    // Of each round by itself, so that a busy machine does not count twice.
    ratio: median(of("grammar").map((run, i) => run.speed / of("free")[i]!.speed)),
    tools: speed("tools"),
    toolsRatio: median(of("tools").map((run, i) => run.speed / of("free")[i]!.speed)),
    sampleUs: { free: sample("free"), grammar: sample("grammar"), tools: sample("tools") },
  };
});
if (values.json) console.log(JSON.stringify({ path, threads, maxTokens, load, table }));
else {
  console.log(
    `${path}, ${threads} threads, ${maxTokens} tokens; load ${load.before.toFixed(1)} to ${load.after.toFixed(1)}`,
  );
  for (const { name, free, grammar, first, ratio, tools, toolsRatio, sampleUs } of table) {
    const sampling = Number.isNaN(sampleUs.free)
      ? ""
      : `; sample ${sampleUs.free.toFixed(0)}, ${sampleUs.grammar.toFixed(0)} and ${sampleUs.tools.toFixed(0)} us`;
    const calls = Number.isNaN(tools)
      ? ""
      : `; tools (auto) ${tools.toFixed(2)}: ${toolsRatio.toFixed(3)}x`;
    console.log(
      `${name.padEnd(9)}  free ${free.toFixed(2)} tokens/s, grammar ${grammar.toFixed(2)} (first ${first.toFixed(2)}): ${ratio.toFixed(3)}x${calls}${sampling}`,
    );
  }
}

// Generation speed with and without a grammar, of Lantern and, where it is installed, of llama.cpp (llama-cpp.ts).
//
//   npm run bench:grammar-generate -- MODEL.gguf [-t 2] [-n 48] [-r 5] [--no-force] [--json]
//
// All take turns: free, with the same GBNF grammar of JSON objects and, in Lantern, with the grammar of an answer that may call tools
// (`tool_choice` auto: free text up to the mark of a call), greedy, as many tokens each. Medians; the load of the machine is printed
// before and after. --no-force: also tokens without an alternative are computed one by one. `sample` is the part of a token's time that is spent between its logits and the next batch: waiting
// for the mask, if it is not there yet, forbidding, choosing.

import { measure, median, medianRatio } from "../src/base/measure.ts";
import { open, toolGrammar } from "../src/index.ts";
import { answer, bench, count, isOn, load } from "./harness.ts";
import { type Llama, llamaWithGrammar, loadLlama } from "./llama-cpp.ts";

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

/** Tokens per second; `sampleUs`: microseconds of each token that sampling takes. */
interface Run {
  readonly speed: number;
  readonly sampleUs?: number;
}

interface Contestant {
  readonly name: string;
  readonly kind: Kind;
  run(kind: Kind): Promise<Run>;
}

const flags = {
  threads: count(2, "t"),
  predict: count(48, "n"),
  repetitions: count(5, "r"),
  noForce: isOn,
  json: isOn,
};
const prompt = "A list of animals as JSON:\n";

await bench("npm run bench:grammar-generate --", "MODEL.gguf", flags, async (given, [path]) => {
  const { threads, predict: maxTokens, repetitions: rounds, noForce, json } = given;
  await using model = await open(path!, { threads, contextSize: 1024 });
  const lantern = async (kind: Kind): Promise<Run> => {
    const grammar = { free: undefined, grammar: gbnf, tools: auto }[kind];
    const options = { maxTokens, cachePrompt: false, forceTokens: !noForce };
    const found = await answer(model, prompt, { ...options, ...(grammar && { grammar }) });
    const { generatedTokens, sampledTokens, sampleMs } = found.timings;
    if (generatedTokens !== maxTokens) throw new Error(`only ${generatedTokens} tokens`);
    return { speed: found.generatedPerSecond, sampleUs: (sampleMs * 1000) / sampledTokens };
  };
  const llama: Llama | undefined = await loadLlama().catch(() => undefined);
  await using peer = llama && (await llamaWithGrammar(llama, path!, threads, 1024));
  if (!peer) {
    console.error("llama.cpp: not installed; LANTERN_PEERS names a folder with node-llama-cpp");
  }
  const llamaCpp = async (kind: Kind): Promise<Run> => ({
    speed: await peer!.generate(prompt, maxTokens, kind === "grammar" ? gbnf : undefined),
  });
  const contestants: Contestant[] = [
    ...(["free", "grammar", "tools"] as const).map((kind) => ({
      ...{ name: "lantern", kind, run: lantern },
    })),
    ...(peer ? (["free", "grammar"] as const) : []).map((kind) => ({
      ...{ name: "llama.cpp", kind, run: llamaCpp },
    })),
  ];
  const before = load();
  /** With a grammar whose masks were not made yet. */
  const first = new Map<string, number>();
  const { samples } = await measure({
    contestants,
    rounds,
    warmUps: 1,
    run: async ({ name, kind, run }, round) => {
      const at = round < 0 ? "warming up" : `round ${round + 1}`;
      if (process.stderr.isTTY) process.stderr.write(`\r${at}: ${name}, ${kind} `.padEnd(40));
      const result = await run(kind);
      if (round < 0 && kind === "grammar") first.set(name, result.speed);
      return result;
    },
  });
  const loads = { before, after: load() };
  const table = [...new Set(contestants.map(({ name }) => name))].map((name) => {
    const of = (kind: Kind): Run[] =>
      samples[contestants.findIndex((one) => one.name === name && one.kind === kind)] ?? [];
    const speeds = (kind: Kind) => of(kind).map(({ speed }) => speed);
    const sample = (kind: Kind) => median(of(kind).map(({ sampleUs = Number.NaN }) => sampleUs));
    return {
      name,
      free: median(speeds("free")),
      grammar: median(speeds("grammar")),
      first: first.get(name)!,
      // Of each round by itself, so that a busy machine does not count twice.
      ratio: medianRatio(speeds("grammar"), speeds("free")),
      tools: median(speeds("tools")),
      toolsRatio: medianRatio(speeds("tools"), speeds("free")),
      sampleUs: { free: sample("free"), grammar: sample("grammar"), tools: sample("tools") },
    };
  });
  if (json) return console.log(JSON.stringify({ path, threads, maxTokens, load: loads, table }));
  console.log(
    `${path}, ${threads} threads, ${maxTokens} tokens; load ${loads.before.toFixed(1)} to ${loads.after.toFixed(1)}`,
  );
  for (const { name, free, grammar, first, ratio, tools, toolsRatio, sampleUs } of table) {
    const us = Object.values(sampleUs).map((one) => one.toFixed(0));
    const sampling = Number.isNaN(sampleUs.free)
      ? ""
      : `; sample ${us[0]}, ${us[1]} and ${us[2]} us`;
    const calls = Number.isNaN(tools)
      ? ""
      : `; tools (auto) ${tools.toFixed(2)}: ${toolsRatio.toFixed(3)}x`;
    console.log(
      `${name.padEnd(9)}  free ${free.toFixed(2)} tokens/s, grammar ${grammar.toFixed(2)} (first ${first.toFixed(2)}): ${ratio.toFixed(3)}x${calls}${sampling}`,
    );
  }
});

// Whether a model's text is the same at every split between the processor and this machine's GPU, and what that costs:
//
//   npm run bench:splits -- MODEL.gguf ... [--tokens 32] [--layers 0,1,7] [--prompt TEXT] [--inexact] [--both] [--json]
//     [--types q4_0,q8_0,iq4_nl]
//
// Greedy text at every -ngl with --exact, against that of the processor alone: the same tokens, and the same log
// probabilities to the last bit. --inexact compares the fast kernels instead, --both one after the other. --types: the models are in F32, and
// quantized to each of these types first. A table of all follows. Speeds are those of open().

import { basename, join } from "node:path";
import { type OpenOptions, open, quantize } from "../src/index.ts";
import {
  bench,
  count,
  firstDifference,
  isOn,
  plain,
  sum,
  text,
  texts,
  timed,
  type Values,
  wholes,
  withFolder,
} from "./harness.ts";

const flags = {
  tokens: count(32),
  layers: wholes(),
  prompt: text("Once upon a time"),
  inexact: isOn,
  both: isOn,
  types: texts(),
  json: isOn,
};
type Given = Values<typeof flags>;

interface Row {
  readonly model: string;
  readonly gpuLayers: number;
  readonly exact: boolean;
  /** The first token that is another; -1: all are the same. */
  readonly differsAt: number;
  /** Log probabilities that are not the same bits. */
  readonly otherBits: number;
  readonly loadSeconds: number;
  readonly promptPerSecond: number;
  readonly generatedPerSecond: number;
}

await bench("npm run bench:splits --", "MODEL.gguf ...", flags, async (given, models) => {
  const lines: string[] = [];
  let wrong = 0;
  await withFolder(async (folder) => {
    for (const model of models) {
      for (const type of given.types ?? [undefined]) {
        const name = basename(model).replace(/(-F32)?\.gguf$/, `-${type}.gguf`);
        const path = type === undefined ? model : join(folder, name);
        if (type !== undefined) await quantize(model, path, type);
        const rows = await rowsOf(path, given);
        for (const exact of [true, false]) {
          if (rows.slice(1).some((row) => row.exact === exact)) lines.push(line(rows, exact));
        }
        // Fast kernels may differ where they are only compared.
        wrong += rows.filter((row) => {
          if (row.exact) return row.differsAt >= 0 || row.otherBits > 0;
          return row.differsAt >= 0 && !given.both;
        }).length;
      }
    }
  });
  const title = "| model | -ngl | other texts | from token | other bits | tokens/s |";
  if (!given.json) console.log([title, ...lines].join("\n"));
  process.exitCode = wrong > 0 ? 1 : 0;
});

async function textOf(path: string, options: OpenOptions, { prompt, tokens }: Given) {
  const { result, ms } = await timed(() => open(path, { contextSize: 512, ...options }));
  await using model = result;
  const generation = model.generate(prompt, { ...plain, maxTokens: tokens, logprobs: 2 });
  const logprobs: number[] = [];
  for await (const { logprob = 0, top = [] } of generation.tokens()) {
    logprobs.push(logprob, ...top.map((other) => other.logprob));
  }
  const { tokenIds: ids, timings } = await generation.result;
  const { promptTokens, promptMs, generatedTokens, generatedMs } = timings;
  return {
    ...{ ids, logprobs, layers: model.info.layers },
    speeds: {
      loadSeconds: ms / 1000,
      promptPerSecond: (1000 * promptTokens) / promptMs,
      generatedPerSecond: (1000 * (generatedTokens - 1)) / generatedMs,
    },
  };
}

/** The splits of one file; the first row is the processor alone. */
async function rowsOf(path: string, given: Given): Promise<Row[]> {
  const alone = await textOf(path, { gpuLayers: 0 }, given);
  const rows: Row[] = [];
  const add = (gpuLayers: number, exact: boolean, got: typeof alone): void => {
    const otherBits = alone.logprobs.filter((value, i) => !Object.is(value, got.logprobs[i]));
    const differsAt = firstDifference(alone.ids, got.ids);
    const facts = { model: basename(path), gpuLayers, exact, differsAt };
    const row = { ...facts, otherBits: otherBits.length, ...got.speeds };
    rows.push(row);
    console.log(given.json ? JSON.stringify(row) : rowText(row));
  };
  add(0, false, alone);
  const every = Array.from({ length: alone.layers + 1 }, (_, i) => i + 1);
  for (const exact of given.both ? [true, false] : [!given.inexact]) {
    for (const gpuLayers of given.layers ?? every) {
      add(gpuLayers, exact, await textOf(path, { gpuLayers, exact }, given));
    }
  }
  return rows;
}

function rowText(row: Row): string {
  const same = row.differsAt < 0 ? "the same text" : `differs from token ${row.differsAt} on`;
  const speeds = `prompt ${row.promptPerSecond.toFixed(1)}, generation ${row.generatedPerSecond.toFixed(1)} tokens/s`;
  return `${row.model} -ngl ${row.gpuLayers}${row.exact ? " --exact" : ""}: ${same}, ${row.otherBits} other bits; ${speeds}`;
}

/** A line of the table: where texts differ, and tokens/s, of all splits. */
function line(rows: readonly Row[], exact: boolean): string {
  const own = rows.slice(1).filter((row) => row.exact === exact);
  const wrong = own.filter(({ differsAt }) => differsAt >= 0);
  const where = wrong.map(({ gpuLayers, differsAt }) => `${differsAt} at ${gpuLayers}`);
  const bits = sum(own.map(({ otherBits }) => otherBits));
  const speeds = own.map(({ generatedPerSecond }) => generatedPerSecond.toFixed(0));
  const name = `${rows[0]!.model}${exact ? " --exact" : ""}`;
  const splits = own.map(({ gpuLayers }) => gpuLayers).join(", ");
  return `| ${name} | ${splits} | ${wrong.length} | ${where.join(", ")} | ${bits} | ${speeds.join(", ")} |`;
}

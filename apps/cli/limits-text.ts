// A LimitsReport as text: the tables of `lantern limits`. Pure functions of the report.

import type { LimitsNames, LimitsReport } from "../../src/index.ts";
import { batchText, servedText, servingText, slaText } from "./serving-text.ts";
import { type Palette, tableText } from "./text.ts";

export function limitsText(report: LimitsReport, color: Palette): string {
  const title = (text: string): string => `\n${color.bold(text)}\n`;
  const note = (text: string): string => `${color.dim(text)}\n`;
  return [
    headText(report),
    title("parameters"),
    parametersText(report),
    title("memory"),
    memoryText(report),
    title("prompt: shortest time to the first token (ms)"),
    report.counting === "best" ? prefillText(report) : articlePrefillText(report),
    turningText(report),
    title("generation: shortest time of token n, (n - 1) / W + B"),
    decodeText(report),
    title(`what would change (tokens/s: of token ${report.context})`),
    effectsText(report),
    report.speculation ? title("speculative decoding") : "",
    speculationText(report),
    ...(report.speculation?.here === undefined
      ? []
      : [
          title("speculative decoding, by batches measured here"),
          hereText(report.speculation.here),
        ]),
    ...(report.serving ? servingParts(report, title) : []),
    report.measured.length > 0 ? title("measured") : "",
    measuredText(report),
    "\n",
    note(
      report.counting === "best"
        ? "No program that generates one token at a time is faster on this device, except with models so small that its caches hold them."
        : "Counted as in the article: arithmetic in F32, the KV cache read again for every token of a prompt. Real programs can be faster.",
    ),
    note(
      "Gi and GiB are powers of 1024, B and GB powers of 1000. docs/use/limits.md says how each number is computed.",
    ),
  ].join("");
}

function servingParts(report: LimitsReport, title: (text: string) => string): string[] {
  const serving = report.serving!;
  return [
    title(`users at once (${slaText(serving.sla)})`),
    servingText(serving),
    serving.batch ? title("offline batch") : "",
    batchText(serving),
    title("users at once, measured"),
    servedText(report, report.device.id === "this"),
  ];
}

function headText({ model, device }: LimitsReport): string {
  const { f32, f16, int8 } = device.opsPerSecond;
  const peaks = [
    `f32 ${opsText(f32)}`,
    ...(f16 !== undefined && f16 !== f32 ? [`f16 ${f16Text(device)}`] : []),
    ...(int8 !== undefined && int8 !== f32 ? [`int8 ${opsText(int8)}`] : []),
  ];
  return tableText([
    ["model", `${model.name} (${model.source})`],
    ["weights", model.weightsText],
    ["KV cache", model.kvText],
    ["device", `${device.name} (${device.source})`],
    ["", `${(device.bytesPerSecond / 1e9).toFixed(1)} GB/s, ${peaks.join(", ")}`],
  ]);
}

function parametersText({ parameters, model }: LimitsReport): string {
  const row = (name: string, count: number, note = ""): string[] => [
    name,
    String(count),
    ...(count >= 1e8
      ? [`${(count / 1e9).toFixed(2)} B`, `${(count / 1024 ** 3).toFixed(2)} Gi`]
      : [`${(count / 1e6).toFixed(2)} M`, `${(count / 1024 ** 2).toFixed(2)} Mi`]),
    note,
  ];
  const { heads, kvHeads, tied } = model.shape;
  const gqa = kvHeads < heads ? `${heads} heads, ${kvHeads} of keys and values` : "";
  const rows = [
    row("layers", parameters.layers, gqa),
    row("head", parameters.head, tied ? "is the embedding table" : ""),
    row("active", parameters.active, "read for every token"),
    row("total", parameters.total, tied ? "" : "with the embedding table"),
  ];
  return tableText(rows, [1, 2, 3]);
}

function memoryText({ memory, context, disk }: LimitsReport): string {
  const fitText = (tokens: number | undefined): string =>
    tokens === undefined
      ? "the weights do not fit"
      : tokens === Infinity
        ? "any context"
        : `${tokens} tokens`;
  const rows = [
    ["weights read per token", gibText(memory.weightBytes)],
    ["weights with embedding table", gibText(memory.storedBytes)],
    [
      "KV cache per token",
      `${(memory.kvBytesPerToken / 1024).toFixed(1)} KiB (${Number((memory.kvParametersPerToken / 1024 ** 2).toPrecision(7))} Mi values)`,
    ],
    [`state of a sequence of ${context} tokens`, gibText(memory.stateBytes)],
  ];
  if (memory.bytes !== undefined) {
    rows.push(
      [`fit in ${gibText(memory.bytes)}`, fitText(memory.tokensThatFit)],
      ["fit with embedding table", fitText(memory.tokensThatFitWithEmbedding)],
    );
  }
  if (disk) {
    const { ramBytes, memoryBytes, diskBytes, bytesPerSecond, tokensPerSecond } = disk;
    rows.push(
      [`weights in memory, with ${gibText(ramBytes)}`, gibText(memoryBytes)],
      ["read from disk for each token", gibText(diskBytes)],
      [
        `at the measured ${(bytesPerSecond / 1e9).toFixed(2)} GB/s`,
        `at most ${tokensPerSecond.toPrecision(3)} tokens/s`,
      ],
    );
  }
  return tableText(rows);
}

function prefillText({ prefill }: LimitsReport): string {
  const header = ["tokens", "read", "compute", "first token", "tokens/s", "limited by"];
  const rows = prefill.rows.map((row) => [
    String(row.tokens),
    msText(row.readMs),
    msText(row.computeMs),
    msText(row.firstTokenMs),
    rateText(row.tokensPerSecond),
    row.resource,
  ]);
  return tableText([header, ...rows], [0, 1, 2, 3, 4]);
}

function articlePrefillText({ prefill }: LimitsReport): string {
  const header = [
    "tokens",
    "read",
    "compute",
    "all logits",
    "cache shared",
    "first token",
    "tokens/s",
    "limited by",
  ];
  const rows = prefill.rows.map((row) => [
    String(row.tokens),
    msText(row.readMs),
    msText(row.computeMs),
    msText(row.roughComputeMs),
    msText(row.sharedReadMs),
    msText(row.firstTokenMs),
    rateText(row.tokensPerSecond),
    row.resource,
  ]);
  return tableText([header, ...rows], [0, 1, 2, 3, 4, 5, 6]);
}

type Turns = LimitsReport["prefill"]["turns"];

function turningText({ prefill, counting }: LimitsReport): string {
  const rows = [["turning points", turnsText(prefill.turns)]];
  if (counting === "article") {
    rows.push(
      ["  with all logits (rough)", turnsText(prefill.rough)],
      ["  with a shared cache", turnsText(prefill.shared)],
    );
  }
  const [first] = prefill.turns.points;
  if (first?.after === "arithmetic") {
    const pieces = Math.ceil(first.tokens);
    rows.push(["prompt in batches", `of ${pieces} tokens or more: as fast as in one`]);
  }
  return tableText(rows);
}

function turnsText({ starts, points }: Turns): string {
  if (points.length === 0) return `none: limited by ${starts} at every length`;
  const turns = points.map(({ tokens, after }) => `${Math.floor(tokens)} (then ${after})`);
  return turns.join(", ");
}

function decodeText({ decode }: LimitsReport): string {
  const facts = tableText([
    ["W", slowdownText(decode.tokensPerMs)],
    ["B", `${decode.firstMs.toFixed(2)} ms for the first token`],
  ]);
  const rows = decode.rows.map((row) => [
    String(row.token),
    msText(row.ms),
    rateText(row.tokensPerSecond),
    msText(row.totalMs),
    row.resource,
  ]);
  const header = ["token", "ms", "tokens/s", "total (ms)", "limited by"];
  return facts + tableText([header, ...rows], [0, 1, 2, 3]);
}

function fitCell(tokens: number | undefined): string {
  if (tokens === undefined) return "oom";
  return tokens === Infinity ? "any" : String(tokens);
}

function effectsText({ effects, memory }: LimitsReport): string {
  const rows = effects.map((effect) => [
    effect.what,
    gibText(effect.weightBytes),
    `${(effect.kvBytesPerToken / 1024).toFixed(1)} KiB`,
    memory.bytes === undefined ? "-" : fitCell(effect.tokensThatFit),
    effect.turningPoints.map(Math.floor).join(", ") || "none",
    fitCell(Math.round(effect.tokensPerMs)),
    effect.firstMs.toFixed(2),
    rateText(effect.tokensPerSecond),
  ]);
  const header = [
    "",
    "weights",
    "KV per token",
    "tokens fit",
    "turns at",
    "W",
    "B (ms)",
    "tokens/s",
  ];
  return tableText([header, ...rows], [1, 2, 3, 4, 5, 6, 7]);
}

function speculationText({ speculation }: LimitsReport): string {
  if (!speculation) return "";
  const { draftTokens, acceptance, context } = speculation;
  return tableText([
    ["drafted at a time", `${draftTokens} tokens, each accepted with probability ${acceptance}`],
    ["accepted per round", `${speculation.tokensPerRound.toFixed(2)} tokens`],
    [
      "per round",
      `${msText(speculation.draftMs)} ms drafts, ${msText(speculation.checkMs)} ms check (limited by ${speculation.resource})`,
    ],
    [
      "per token",
      `${msText(speculation.msPerToken)} ms instead of ${msText(speculation.plainMs)}: ${speculation.speedup.toFixed(2)} times as fast, ${context} tokens in the cache`,
    ],
    [
      "best here",
      speculation.bestDraftTokens === 0
        ? "no speculation"
        : `${speculation.bestDraftTokens} tokens at a time: ${speculation.bestSpeedup.toFixed(2)} times as fast`,
    ],
    ["gain", gainText(speculation)],
  ]);
}

type Here = NonNullable<NonNullable<LimitsReport["speculation"]>["here"]>;

/** From measured times of batches: the predicted gain, beside the gain that runs had. */
function hereText(here: Here): string {
  if (typeof here === "string") return tableText([["costs", here]]);
  const { threads, batchMs, draftMs, best, curve, runs } = here;
  const sizes = batchSizes.map((tokens) => `${tokens}: ${msText(batchMs[tokens - 1]!)}`);
  const facts = tableText([
    [
      "batches",
      `${sizes.join(", ")} ms (matmuls of so many tokens, ${threads} threads, from the tune file)`,
    ],
    ["a drafted token", `${msText(draftMs)} ms`],
    [
      "best here",
      best.draftTokens === 0
        ? "no speculation"
        : `${best.draftTokens} tokens at a time: ${best.speedup.toFixed(2)} times as fast`,
    ],
    ["gain", gainText({ curve })],
  ]);
  if (runs.length === 0) return facts;
  const rows = runs.map(({ label, threads: used, speedup, predicted, batchTokens, keptTokens }) => [
    label,
    String(used),
    `${keptTokens.toFixed(2)} of ${batchTokens.toFixed(2)}`,
    `${speedup.toFixed(2)}x`,
    predicted === undefined ? "not measured" : `${predicted.toFixed(2)}x`,
    predicted === undefined ? "" : `${Math.round((100 * speedup) / predicted)}%`,
  ]);
  const header = ["run", "threads", "kept of a batch", "measured", "predicted", "reached"];
  return facts + tableText([header, ...rows], [1, 2, 3, 4, 5]);
}

/** Tokens of batches whose times are printed. */
const batchSizes: readonly number[] = [1, 2, 3, 4, 6, 8, 12, 16];

/** Drafted tokens for which the gain is printed; the chart has all. */
const gainCounts: readonly number[] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/** "1: 1.80x, 2: 2.44x, ...": by the number of drafted tokens. */
function gainText({
  curve,
}: {
  readonly curve: readonly { readonly draftTokens: number; readonly speedup: number }[];
}): string {
  return curve
    .filter(({ draftTokens }) => gainCounts.includes(draftTokens))
    .map(({ draftTokens, speedup }) => `${draftTokens}: ${speedup.toFixed(2)}x`)
    .join(", ");
}

const testNames: Record<LimitsReport["measured"][number]["kind"], string> = {
  prompt: "pp",
  generation: "tg",
};

function measuredText({ measured }: LimitsReport): string {
  if (measured.length === 0) return "";
  const rows = measured.map((speed) => [
    `${testNames[speed.kind]}${speed.tokens}`,
    speed.label,
    rateText(speed.tokensPerSecond),
    rateText(speed.limitTokensPerSecond),
    `${Math.round(speed.fraction * 100)}%`,
    speed.resource,
  ]);
  const header = ["test", "", "tokens/s", "limit", "reached", "limited by"];
  return tableText([header, ...rows], [2, 3, 4]);
}

/** --list */
export function namesText({ models, devices }: LimitsNames): string {
  const modelRows = models.map(({ id, name, shape }) => [
    id,
    name,
    String(shape.layers),
    String(shape.embed),
    String(shape.feedForward),
    `${shape.heads}/${shape.kvHeads}`,
    String(shape.vocabSize),
  ]);
  const deviceRows = devices.map((device) => [
    device.id,
    device.name,
    device.memoryBytes === undefined ? "-" : gibText(device.memoryBytes),
    `${(device.bytesPerSecond / 1e9).toFixed(0)} GB/s`,
    opsText(device.opsPerSecond.f32),
    device.opsPerSecond.f16 === undefined ? "-" : f16Text(device),
    device.opsPerSecond.int8 === undefined ? "-" : opsText(device.opsPerSecond.int8),
    device.source,
  ]);
  const modelHeader = ["MODEL", "", "LAYERS", "EMBED", "FEED-FORWARD", "HEADS/KV", "VOCABULARY"];
  const deviceHeader = ["DEVICE", "", "MEMORY", "BANDWIDTH", "F32", "F16", "INT8", "FROM"];
  return `${tableText([modelHeader, ...modelRows], [2, 3, 4, 5, 6])}\n${tableText([deviceHeader, ...deviceRows], [2, 3, 4, 5, 6])}`;
}

function gibText(bytes: number): string {
  const gib = bytes / 1024 ** 3;
  return gib >= 0.1 ? `${gib.toFixed(2)} GiB` : `${(gib * 1024).toFixed(1)} MiB`;
}

/** "82.6 T/s": operations. */
function opsText(perSecond: number): string {
  return perSecond >= 1e12
    ? `${(perSecond / 1e12).toPrecision(3)} T/s`
    : `${(perSecond / 1e9).toFixed(1)} G/s`;
}

/** Only a measured or data sheet value is printed alone. */
function f16Text({ opsPerSecond, f16From }: LimitsReport["device"]): string {
  const text = opsText(opsPerSecond.f16!);
  return f16From === undefined ? text : `at most ${text} (${f16From})`;
}

/** At least three digits. */
function msText(ms: number): string {
  return ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2);
}

function rateText(perSecond: number): string {
  return perSecond >= 100 ? perSecond.toFixed(0) : perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

/** A state of fixed size makes no token slower. */
function slowdownText(tokensPerMs: number): string {
  if (tokensPerMs === Infinity) return "any: the state does not grow with the tokens";
  return `${Math.round(tokensPerMs)} more tokens in the cache make a token 1 ms slower`;
}

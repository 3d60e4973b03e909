// Decides which of two backends computes prompts and which generated tokens, from measured times: those of all matmuls of the
// model on either side by number of tokens (two tune files), of moving activations and results, and of moving the cache from
// one to the other. Arithmetic only; src/load/choose-backend.ts makes the backend.
//
// A text must not depend on other requests, and the two sides round sums in another order. So the phase of a token decides
// the side that computes it, not the number of other tokens in its batch. Whether single matmuls would gain on the other
// side is computed as well (mix.ts), and reported.

import type { SideChoice } from "../backends/switch/divide-batch.ts";
import type { Side } from "../backends/switch/newest.ts";
import { plural } from "../base/plural.ts";
import { KV_BLOCK_TOKENS } from "../graph/batch.ts";
import type { MatmulGroup } from "../limits/model-matmuls.ts";
import { crossover } from "./cross-backends.ts";
import {
  type DeviceFiles,
  type DeviceStages,
  deviceProfiles,
  type MatmulTimesOf,
  matmulTimesOf,
  stagesTotal,
} from "./device-profiles.ts";
import { basisFor } from "./estimate.ts";
import type { TransferTimes } from "./gpu-transfers.ts";
import { bestMix, type GroupCost, type Mix, sumOn } from "./mix.ts";
import { problemText, type StageTimes, type TuneProblem } from "./tune-file.ts";

export interface SidesRequest extends DeviceFiles {
  /** The model's matmuls, in their order. */
  readonly groups: readonly MatmulGroup[];
  readonly transfers: TransferTimes;
  /** Bytes of a token in the cache, all layers. */
  readonly kvTokenBytes: number;
  /** Tokens of a batch of a prompt. */
  readonly promptTokens: number;
}

/** Milliseconds of a batch on either side. */
export interface SideTimes {
  readonly tokens: number;
  readonly cpuMs: number;
  readonly gpuMs: number;
}

/** A kind of matmul with its profiles over both devices. */
interface MatmulRow {
  readonly problem: TuneProblem;
  readonly count: number;
  readonly points: readonly {
    readonly tokens: number;
    readonly stages: readonly (DeviceStages | undefined)[];
  }[];
  /** For each profile after the first: the number of tokens from which it is faster than the first; undefined: never. */
  readonly crossovers: readonly (number | undefined)[];
}

export interface SidesEstimate {
  readonly choice: SideChoice;
  /** For one prompt token and one generated token, by pair of sides, moving the cache included. */
  readonly costs: readonly { readonly choice: SideChoice; readonly ms: number }[];
  readonly times: readonly SideTimes[];
  /** The time to move a token's part of the cache, there and back. */
  readonly moveMs: number;
  /** The numbers of tokens from which another side is faster; the first entry names the side for one token. */
  readonly crossovers: readonly { readonly tokens: number; readonly faster: "cpu" | "webgpu" }[];
  readonly matmuls: readonly MatmulRow[];
  /** With every matmul on the side of its own choice: for one token, and for a batch of a prompt. */
  readonly mixes: readonly (Mix & { readonly tokens: number; readonly pays: boolean })[];
}

/** Taking turns must gain clearly: it holds the weights twice. */
const CLEAR_GAIN = 0.9;
const names = ["cpu", "webgpu"] as const;

/** A sentence if a type was not measured on one of the sides. */
export function estimateSides(request: SidesRequest): SidesEstimate | string {
  const { groups, transfers, kvTokenBytes } = request;
  const known = new Map<string, MatmulTimesOf>();
  for (const problem of groups.flatMap(({ matmuls }) => matmuls)) {
    const text = problemText(problem);
    if (known.has(text)) continue;
    const times = matmulTimesOf(request, problem);
    if (!times?.cpu(1) || !times.gpu(1)) return lackingText(request, problem);
    known.set(text, times);
  }
  if (known.size === 0) return "the model has no matmuls";
  const measured = [...known.values()].flatMap((times) => times.measured);
  const largest = Math.min(request.promptTokens, Math.max(...measured));
  const counts = [...new Set([1, ...measured, largest])].filter((m) => m <= largest);
  counts.sort((a, b) => a - b);
  const costsAt = (tokens: number) => groups.map((group) => groupCost(group, tokens, known));
  const times = counts.map((tokens): SideTimes => {
    const [cpuMs, gpuMs] = ([0, 1] as const).map(
      (side) => sumOn(costsAt(tokens), transfers, side) / 1000,
    );
    return { tokens, cpuMs: cpuMs!, gpuMs: gpuMs! };
  });
  const msOf = (side: Side, tokens: number) => {
    const { cpuMs, gpuMs } = times.find((one) => one.tokens === tokens)!;
    return (side === 0 ? cpuMs : gpuMs) / tokens;
  };
  // Blocks of the cache are moved one by one.
  const block = KV_BLOCK_TOKENS * kvTokenBytes;
  const moveMs = (transfers.there(block) + transfers.back(block)) / KV_BLOCK_TOKENS / 1000;
  const pairs = ([0, 1] as const).flatMap((prompt) =>
    ([0, 1] as const).map((generation): SideChoice => ({ prompt, generation })),
  );
  const costs = pairs.map((choice) => {
    const { prompt, generation } = choice;
    const move = prompt === generation ? 0 : moveMs;
    return { choice, ms: msOf(prompt, largest) + msOf(generation, 1) + move };
  });
  const mixes = [...new Set([1, largest])].map((tokens) => {
    const mix = bestMix(costsAt(tokens), transfers);
    return { ...mix, tokens, pays: mix.us <= mix.aloneUs * CLEAR_GAIN };
  });
  return {
    choice: bestOf(costs),
    costs,
    times,
    moveMs,
    crossovers: crossoversOf(times),
    matmuls: rowsOf(groups, known, counts),
    mixes,
  };
}

function lackingText({ cpu }: SidesRequest, problem: TuneProblem): string {
  const missing = basisFor(cpu, problem, 1) ? "webgpu" : "cpu";
  const what = problem.experts ? problemText(problem) : problem.dtype;
  return `${what} was not measured on ${missing}: "lantern tune -m MODEL --backend cpu,webgpu" does`;
}

/** One side, unless two gain clearly. */
function bestOf(costs: SidesEstimate["costs"]): SideChoice {
  const least = (some: SidesEstimate["costs"]) => some.reduce((a, b) => (b.ms < a.ms ? b : a));
  const alone = least(costs.filter(({ choice }) => choice.prompt === choice.generation));
  const best = least(costs);
  return best.ms <= alone.ms * CLEAR_GAIN ? best.choice : alone.choice;
}

/** Matmuls that read the same activations prepare them once. */
function groupCost(
  group: MatmulGroup,
  tokens: number,
  known: ReadonlyMap<string, MatmulTimesOf>,
): GroupCost {
  // Only the last token of a prompt has logits.
  const rows = group.rows === "tokens" ? tokens : 1;
  const on = (side: "cpu" | "gpu"): number => {
    const times = group.matmuls.map((one) => known.get(problemText(one))![side](rows)!);
    const init = Math.max(...times.map((one: StageTimes) => one.init));
    return times.reduce((sum, { compute }) => sum + compute, init);
  };
  return { group, rows, us: [on("cpu"), on("gpu")] };
}

function rowsOf(
  groups: readonly MatmulGroup[],
  known: ReadonlyMap<string, MatmulTimesOf>,
  counts: readonly number[],
): MatmulRow[] {
  const all = groups.flatMap(({ matmuls }) => matmuls);
  return [...known].map(([text, times]) => {
    const same = all.filter((one) => problemText(one) === text);
    const isFaster = (profile: number) => (m: number) => {
      const [cpu, other] = [times.stages(m)[0], times.stages(m)[profile]];
      return cpu !== undefined && other !== undefined && stagesTotal(other) < stagesTotal(cpu);
    };
    return {
      problem: same[0]!,
      count: same.length,
      points: [...new Set([counts[0]!, counts.at(-1)!])].map((tokens) => ({
        tokens,
        stages: times.stages(tokens),
      })),
      crossovers: deviceProfiles.slice(1).map((_, i) => crossover(counts, isFaster(i + 1))),
    };
  });
}

function crossoversOf(times: readonly SideTimes[]): SidesEstimate["crossovers"] {
  const winners = times.map(({ tokens, cpuMs, gpuMs }) => {
    return { tokens, faster: names[gpuMs < cpuMs ? 1 : 0] };
  });
  return winners.filter(({ faster }, i) => faster !== winners[i - 1]?.faster);
}

/** For --explain. */
export function explainSides(found: SidesEstimate): string[] {
  const { costs, times, moveMs, crossovers, matmuls, mixes } = found;
  return [
    "all matmuls of a batch, estimated from measured times:",
    ...times.map(
      ({ tokens, cpuMs, gpuMs }) =>
        `  ${String(tokens).padStart(4)} tokens: cpu ${ms(cpuMs)}, webgpu ${ms(gpuMs)}`,
    ),
    crossovers.length === 1
      ? `  ${crossovers[0]!.faster} is faster at every number of tokens`
      : `  crossover: ${crossovers.map(({ tokens, faster }) => `${faster} from ${plural(tokens, "token")} on`).join(", ")}`,
    `  moving a token's keys and values, there and back: ${ms(moveMs)}`,
    ...costs.map(
      ({ choice, ms: cost }) =>
        `  prompts on ${names[choice.prompt]}, generated tokens on ${names[choice.generation]}: ${ms(cost)} for one of each`,
    ),
    "each matmul by itself, init + compute (+ finish: results to the host):",
    ...deviceProfiles.map(({ name, about }) => `  ${name}: ${about}`),
    ...matmuls.flatMap(matmulLines),
    "every matmul on the device of its own choice, with only activations to move (docs/use/tune.md):",
    ...mixes.flatMap(mixLines),
  ];
}

function matmulLines({ problem, count, points, crossovers }: MatmulRow): string[] {
  const faster = crossovers.flatMap((m, i) =>
    m === undefined ? [] : [`${deviceProfiles[i + 1]!.name} from ${plural(m, "token")}`],
  );
  return [
    `  ${problemText(problem)}, ${plural(count, "time")}:`,
    ...points.map(({ tokens, stages }) => {
      const all = deviceProfiles.map(({ name }, i) => `${name} ${stagesText(stages[i])}`);
      return `    ${plural(tokens, "token")}: ${all.join("; ")}`;
    }),
    `    faster than cpu: ${faster.length > 0 ? faster.join(", ") : "none at any number of tokens"}`,
  ];
}

function stagesText(stages: DeviceStages | undefined): string {
  if (!stages) return "-";
  const { init, compute, finish } = stages;
  const parts = finish > 0 ? [init, compute, finish] : [init, compute];
  return `${parts.map((us) => us.toFixed(1)).join(" + ")} us`;
}

/** The inequality: the gain of the best single matmul on the other device, and the cost of moving its activations. */
function mixLines(mix: SidesEstimate["mixes"][number]): string[] {
  const { tokens, us, alone, aloneUs, moved, single, pays } = mix;
  const other = names[alone === 0 ? 1 : 0];
  const { name, gainUs, transferUs } = single;
  const most =
    gainUs > 0
      ? `${name} gains most on ${other}: ${us1(gainUs)}, and its transfers take ${us1(transferUs)}`
      : `no matmul is faster on ${other}`;
  const verdict = pays
    ? `it would take at least ${ms(us / 1000)} with ${plural(moved.length, "matmul")} on ${other} (${some(moved)}). Only whole layers can be moved (-ngl): a text must not depend on its neighbours`
    : `it would take at least ${ms(us / 1000)}: not worth it`;
  return [
    `  ${plural(tokens, "token")}: ${names[alone]} alone takes ${ms(aloneUs / 1000)}, ${verdict}`,
    `    ${most}`,
  ];
}

function some(names: readonly string[]): string {
  return names.length > 4 ? `${names.slice(0, 4).join(", ")}, ...` : names.join(", ");
}

function ms(value: number): string {
  return `${value.toPrecision(3)} ms`;
}

function us1(value: number): string {
  return `${value.toFixed(1)} us`;
}

// Which of two backends computes prompts and which generated tokens, from measured times: those of all matmuls of the model on
// either side by number of tokens (two tune files), what a batch costs on a GPU by itself, and what it takes to move the cache
// from one to the other. Arithmetic only; src/load/choose-backend.ts makes the backend.
//
// A text must not depend on who else is served, and the two sides round sums in another order. So it is the phase of a token
// that decides where it is computed, not how many others are in its batch.

import type { SideChoice } from "../backends/switch/divide-batch.ts";
import type { Side } from "../backends/switch/newest.ts";
import type { GpuLink } from "../limits/gpu-device.ts";
import { basisFor, estimate } from "./estimate.ts";
import type { CountedProblem } from "./space.ts";
import type { TuneFile } from "./tune-file.ts";

export interface SidesRequest {
  readonly cpu: TuneFile;
  readonly gpu: TuneFile;
  readonly problems: readonly CountedProblem[];
  readonly threads: number;
  readonly link: GpuLink;
  /** Of the cache, all layers. */
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

export interface SidesEstimate {
  readonly choice: SideChoice;
  /** For one prompt token and one generated token, by pair of sides, moving the cache included. */
  readonly costs: readonly { readonly choice: SideChoice; readonly ms: number }[];
  readonly times: readonly SideTimes[];
  /** Of a token's part of the cache, there and back. */
  readonly moveMs: number;
  /** From how many tokens on another side is faster; the first entry says who is for one token. */
  readonly crossovers: readonly { readonly tokens: number; readonly faster: "cpu" | "webgpu" }[];
}

/** Taking turns must gain clearly: it holds the weights twice. */
const CLEAR_GAIN = 0.9;
const names = ["cpu", "webgpu"] as const;

/** A sentence where a type was not measured on one of the sides. */
export function estimateSides(request: SidesRequest): SidesEstimate | string {
  const { cpu, gpu, problems, link, kvTokenBytes } = request;
  for (const [file, name] of [
    [cpu, "cpu"],
    [gpu, "webgpu"],
  ] as const) {
    const lacking = problems.find((problem) => totalMs(file, [problem], 1, 1) === undefined);
    if (lacking) {
      return `${lacking.dtype} was not measured on ${name}: "lantern tune -m MODEL --backend cpu,webgpu" does`;
    }
  }
  const measured = [...cpu.groups, ...gpu.groups].flatMap(({ lines }) => lines.map(({ m }) => m));
  const largest = Math.min(request.promptTokens, Math.max(...measured));
  const counts = [...new Set([...measured, largest])].filter((m) => m <= largest);
  const times = counts.sort((a, b) => a - b).map((tokens) => timesFor(request, tokens));
  const msOf = (side: Side, tokens: number) => {
    const { cpuMs, gpuMs } = times.find((one) => one.tokens === tokens)!;
    return (side === 0 ? cpuMs : gpuMs) / tokens;
  };
  const moveMs =
    1000 * kvTokenBytes * (1 / link.uploadBytesPerSecond + 1 / link.downloadBytesPerSecond);
  const pairs = ([0, 1] as const).flatMap((prompt) =>
    ([0, 1] as const).map((generation): SideChoice => ({ prompt, generation })),
  );
  const costs = pairs.map((choice) => {
    const { prompt, generation } = choice;
    const move = prompt === generation ? 0 : moveMs;
    return { choice, ms: msOf(prompt, largest) + msOf(generation, counts[0]!) + move };
  });
  return { choice: bestOf(costs), costs, times, moveMs, crossovers: crossoversOf(times) };
}

/** One side, unless two gain clearly. */
function bestOf(costs: SidesEstimate["costs"]): SideChoice {
  const least = (some: SidesEstimate["costs"]) => some.reduce((a, b) => (b.ms < a.ms ? b : a));
  const alone = least(costs.filter(({ choice }) => choice.prompt === choice.generation));
  const best = least(costs);
  return best.ms <= alone.ms * CLEAR_GAIN ? best.choice : alone.choice;
}

function timesFor({ cpu, gpu, problems, threads, link }: SidesRequest, tokens: number): SideTimes {
  return {
    tokens,
    cpuMs: totalMs(cpu, problems, threads, tokens)!,
    gpuMs: totalMs(gpu, problems, 1, tokens)! + 1000 * link.roundTripSeconds,
  };
}

/** Of all matmuls, each by its fastest profile; undefined: one of them was not measured. */
function totalMs(
  file: TuneFile,
  problems: readonly CountedProblem[],
  threads: number,
  tokens: number,
): number | undefined {
  let us = 0;
  for (const problem of problems) {
    const basis = basisFor(file, problem, threads);
    const known = file.profiles.flatMap((_, profile) => {
      const times = basis && estimate(basis, profile, tokens);
      return times ? [times.init + times.compute] : [];
    });
    if (known.length === 0) return undefined;
    us += problem.count * Math.min(...known);
  }
  return us / 1000;
}

function crossoversOf(times: readonly SideTimes[]): SidesEstimate["crossovers"] {
  const winners = times.map(({ tokens, cpuMs, gpuMs }) => {
    return { tokens, faster: names[gpuMs < cpuMs ? 1 : 0] };
  });
  return winners.filter(({ faster }, i) => faster !== winners[i - 1]?.faster);
}

/** For --explain. */
export function explainSides({ costs, times, moveMs, crossovers }: SidesEstimate): string[] {
  const ms = (value: number) => `${value.toPrecision(3)} ms`;
  return [
    "all matmuls of a batch, estimated from measured times:",
    ...times.map(
      ({ tokens, cpuMs, gpuMs }) =>
        `  ${String(tokens).padStart(4)} tokens: cpu ${ms(cpuMs)}, webgpu ${ms(gpuMs)}`,
    ),
    crossovers.length === 1
      ? `  ${crossovers[0]!.faster} is faster at every number of tokens`
      : `  crossover: ${crossovers.map(({ tokens, faster }) => `${faster} from ${tokens} tokens on`).join(", ")}`,
    `  moving a token's keys and values, there and back: ${ms(moveMs)}`,
    ...costs.map(
      ({ choice, ms: cost }) =>
        `  prompts on ${names[choice.prompt]}, generated tokens on ${names[choice.generation]}: ${ms(cost)} for one of each`,
    ),
  ];
}

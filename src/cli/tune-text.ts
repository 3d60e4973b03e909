// A tune file as tables for a terminal.

import {
  type BackendCrossing,
  type TuneAnalysis,
  type TuneFile,
  type TuneProblem,
  type TuneTestPoint,
  tuneDeviceProfiles,
} from "../index.ts";
import { plural, tableText } from "./text.ts";

/** Gains smaller than this are noise. */
const noise = 1.02;

export function analysisText(file: TuneFile, analysis: TuneAnalysis): string {
  const name = (profile: number): string => {
    const { variant, idle, level } = file.profiles[profile]!;
    return `${variant}${idle === "sleep" ? " sleeping" : ""}${level === 2 ? " (opt level 2)" : ""}`;
  };
  const sections = analysis.groups.map(({ group, points, crossovers }) => {
    const rows = points.map(({ m, best, usual, opsPerSecond }) => [
      String(m),
      name(best.profile),
      timeText(best.us),
      (opsPerSecond / 1e9).toFixed(1),
      usual ? timeText(usual.us) : "-",
      usual ? gainText(usual.us / best.us) : "-",
    ]);
    const header = ["tokens", "fastest", "time", "GOPS", "default", "gain"];
    const crossing = crossovers.map(({ m, to }) => `${name(to)} from ${m} tokens`).join(", ");
    const noisy = group.noise === undefined ? "" : `, noise ${percent(group.noise)}`;
    const title = `${problemText(group)}, ${plural(group.threads, "thread")}${noisy}`;
    const table = tableText([header, ...rows], [0, 2, 3, 4, 5]);
    return `${title}\n${table}${crossing ? `  crossovers: ${crossing}\n` : ""}`;
  });
  const { median, most } = analysis.gain;
  const about = `${file.cpu}, ${plural(file.cores, "core")}, ${file.features}, measured ${file.date.slice(0, 16).replace("T", " ")} UTC`;
  const gain = `The tuned kernels are ${median.toFixed(2)} times as fast as the defaults (median), at most ${most.toFixed(2)} times.`;
  const layers = layersText(analysis).trim();
  return `${[about, ...sections, threadsText(analysis), notifyText(analysis), layers, gain].filter((text) => text !== "").join("\n\n")}\n`;
}

/** Tokens with layers in one dispatch, beside a dispatch for each op; empty if they were not measured. */
export function layersText({ layers }: Pick<TuneAnalysis, "layers">): string {
  const sections = layers.map(({ shape, bytes, contexts, noise, use, gain, dispatches }) => {
    const noisy = noise === undefined ? "" : `, noise ${percent(noise)}`;
    const title = `Layers of ${(bytes / 2 ** 20).toFixed(1)} MiB (${shape}) in one dispatch of so many workgroups x lanes: time of a token${noisy}`;
    const rows = dispatches.map(({ name, result }) =>
      typeof result === "string"
        ? [name, "-", "-", result]
        : [name, ...result.map(timeText), name === use ? gainText(gain) : ""],
    );
    const header = ["dispatch", ...contexts.map((tokens) => `after ${tokens}`), ""];
    const used =
      use === undefined
        ? "not used: these were other kernels"
        : use === "apart"
          ? "used: apart, a dispatch for each op"
          : `used: ${use}`;
    return `${title}\n${tableText([header, ...rows], [1, 2])}  ${used}\n`;
  });
  return sections.length === 0 ? "" : `\n${sections.join("\n")}`;
}

/** What it takes to wake a thread, how much it varies, and what that means for every variant. */
function notifyText({ notify, sleeping }: TuneAnalysis): string {
  const cost = notify
    ? [
        `Waking a thread (wait/notify) takes ${timeText(notify.us)}; 8 of 10 times ${notify.low.toFixed(1)} to ${notify.high.toFixed(1)} us.`,
      ]
    : [];
  const measured = sleeping.map(({ threads, us, low, high, pairs }) => {
    const longer = us < 0 ? `${timeText(-us)} less` : `${timeText(us)} longer`;
    const others = us > 0 ? "with that" : "with a wake-up more";
    return `With ${plural(threads, "thread")} that sleep instead of spinning, a matmul takes ${longer} (${pairs} measured both ways; 8 of 10 times ${low.toFixed(1)} to ${high.toFixed(1)} us). All other variants are estimated ${others}.`;
  });
  return [...cost, ...measured].join("\n");
}

/** The profiles over CPU and GPU, and which is faster from how many tokens on; empty if only one was measured. */
export function crossingsText(crossings: readonly BackendCrossing[]): string {
  if (crossings.length === 0) return "";
  const shapes = crossings.map((crossing) => {
    const { threads, points, crossovers } = crossing;
    const rows = points.map(({ m, profiles }) => {
      const best = Object.entries(profiles).reduce((a, b) => (sum(b[1]) < sum(a[1]) ? b : a));
      const times = tuneDeviceProfiles.map(({ name }) => stagesText(profiles[name]));
      return [String(m), ...times, best[0]];
    });
    const header = ["tokens", ...tuneDeviceProfiles.map(({ name }) => name), "fastest"];
    const table = tableText([header, ...rows], [0, 1, 2, 3, 4, 5]);
    const faster = crossovers.flatMap(({ profile, m }) =>
      m === undefined ? [] : [`${profile} from ${plural(m, "token")}`],
    );
    const which = faster.length > 0 ? faster.join(", ") : "none at any number of tokens";
    const title = `${problemText(crossing)}, ${plural(threads, "thread")}`;
    return `${title}\n${table}  faster than cpu: ${which}\n`;
  });
  const legend = tuneDeviceProfiles.map(({ name, about }) => `  ${name}: ${about}`).join("\n");
  return `\nCPU and GPU: microseconds of init + compute (+ finish: results to the host)\n${legend}\n\n${shapes.join("\n")}`;
}

function sum({ init, compute, finish }: { init: number; compute: number; finish: number }): number {
  return init + compute + finish;
}

function stagesText(stages: { init: number; compute: number; finish: number } | undefined): string {
  if (!stages) return "-";
  const { init, compute, finish } = stages;
  const parts = finish > 0 ? [init, compute, finish] : [init, compute];
  return parts.map((us) => us.toFixed(1)).join(" + ");
}

function problemText({ dtype, n, k, experts }: TuneProblem): string {
  const of = experts ? `, ${experts.used} of ${experts.count} experts` : "";
  return `${dtype}  ${n} x ${k}${of}`;
}

/** The effect of more threads, for one token and for the most. */
function threadsText({ threads }: TuneAnalysis): string {
  if (threads.length === 0) return "";
  const rows = threads.map((effect) => [
    problemText(effect),
    String(effect.m),
    ...effect.counts.map(({ gain }) => `${gain.toFixed(2)}x`),
  ]);
  const counts = threads[0]!.counts.map(({ threads: count }) => `t=${count}`);
  return `Effect of threads (times as fast as t=${threads[0]!.counts[0]!.threads})\n${tableText(
    [["shape", "tokens", ...counts], ...rows],
    [1, ...counts.map((_, i) => i + 2)],
  ).trimEnd()}`;
}

export function testText(points: readonly TuneTestPoint[]): string {
  const header = [
    ...["shape", "threads", "tokens", "profile", "predicted", "measured", "error"],
    "of default",
  ];
  const errors = points.map(({ predicted, measured }) => measured / predicted - 1);
  const rows = points.map((point, i) => [
    `${point.dtype}  ${point.n} x ${point.k}`,
    String(point.threads),
    String(point.m),
    point.profile,
    timeText(point.predicted),
    timeText(point.measured),
    `${errors[i]! >= 0 ? "+" : ""}${percent(errors[i]!)}`,
    point.overDefault === undefined
      ? "default"
      : `${percent(point.overDefault)}${point.isSlower ? " slower" : ""}`,
  ]);
  return `${tableText([header, ...rows], [1, 2, 4, 5, 6, 7])}\n${errorText(errors)}\n`;
}

/** A machine that became faster or slower changes all times alike, which changes no choice: reported separately. */
function errorText(errors: readonly number[]): string {
  const factor = 1 + middle(errors);
  const rest = errors.map((error) => Math.abs((1 + error) / factor - 1));
  const common = `${factor.toFixed(2)} times as long now, and differ by ${percent(middle(rest))} besides`;
  return `Median error ${percent(middle(errors.map(Math.abs)))} (matmuls take ${common}).`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)}%`;
}

function middle(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}

function timeText(us: number): string {
  return us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : `${us.toFixed(1)} us`;
}

function gainText(gain: number): string {
  return gain < noise ? "-" : `${gain.toFixed(2)}x`;
}

// A tune file as tables for a terminal.

import { median } from "../../src/base/measure.ts";
import {
  type BackendCrossing,
  type TuneAnalysis,
  type TuneFile,
  type TuneProblem,
  type TuneTestPoint,
  tuneDeviceProfiles,
} from "../../src/index.ts";
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

/** The time to wake a thread, its variation, and its effect on every variant. */
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
  const rows = points.map((point) => [
    `${point.dtype}  ${point.n} x ${point.k}`,
    String(point.threads),
    String(point.m),
    point.profile,
    timeText(point.predicted),
    timeText(point.measured),
    `${errorOf(point) >= 0 ? "+" : ""}${percent(errorOf(point))}`,
    point.overDefault === undefined
      ? "default"
      : `${percent(point.overDefault)}${point.isSlower ? " slower" : ""}`,
  ]);
  const table = tableText([header, ...rows], [1, 2, 4, 5, 6, 7]);
  return `${table}\n${errorText(points)}\n${slowerText(points)}\n`;
}

/** Measured over predicted, less 1. */
function errorOf({ predicted, measured }: TuneTestPoint): number {
  return measured / predicted - 1;
}

/** Fractions: how far measured times are from predicted ones. */
export function testErrors(points: readonly TuneTestPoint[]): {
  medianError: number;
  worstError: number;
} {
  const errors = points.map((point) => Math.abs(errorOf(point)));
  return {
    medianError: errors.length > 0 ? median(errors) : 0,
    worstError: Math.max(0, ...errors),
  };
}

/** A machine that became faster or slower changes all times alike, which changes no choice: reported separately. */
function errorText(points: readonly TuneTestPoint[]): string {
  if (points.length === 0) return "Nothing was measured again.";
  const { medianError, worstError } = testErrors(points);
  const errors = points.map(errorOf);
  const factor = 1 + median(errors);
  const rest = errors.map((error) => Math.abs((1 + error) / factor - 1));
  const common = `${factor.toFixed(2)} times as long now, and differ by ${percent(median(rest))} besides`;
  return `Median error ${percent(medianError)}, worst ${percent(worstError)} (matmuls take ${common}).`;
}

function slowerText(points: readonly TuneTestPoint[]): string {
  const slower = points.filter(({ isSlower }) => isSlower);
  if (slower.length === 0) return "No choice is slower than the default.";
  const texts = slower.map(
    ({ dtype, n, k, threads, m, profile, overDefault = 1 }) =>
      `  ${dtype} ${n} x ${k}, ${plural(threads, "thread")}, ${plural(m, "token")}: ${profile} takes ${percent(overDefault)} of the default's time`,
  );
  return ["Slower than the default:", ...texts].join("\n");
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)}%`;
}

function timeText(us: number): string {
  return us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : `${us.toFixed(1)} us`;
}

function gainText(gain: number): string {
  return gain < noise ? "-" : `${gain.toFixed(2)}x`;
}

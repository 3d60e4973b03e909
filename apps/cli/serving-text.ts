// Many users at once as text, for `lantern limits` and `lantern bench serve`, and the flags that both take.

import { InvalidArgumentError } from "commander";
import type { LimitsReport, ServingReport, Sla } from "../../src/index.ts";
import { bytesText, durationText, plural, tableText } from "./text.ts";

/** "2s,20": the first token within 2 s, and 20 tokens/s for each user. */
export function slaFlag(text: string): Sla {
  const [, first, unit, rate] = /^((?:\d*\.)?\d+)(ms|s)?,((?:\d*\.)?\d+)$/.exec(text.trim()) ?? [];
  const firstTokenMs = Number(first) * (unit === "ms" ? 1 : 1000);
  const tokensPerSecond = Number(rate);
  if (firstTokenMs > 0 && tokensPerSecond > 0) return { firstTokenMs, tokensPerSecond };
  throw new InvalidArgumentError(
    "Expected the time to the first token and the tokens/s of each user, as in 2s,20 or 500ms,10.",
  );
}

export const slaHelp =
  "what every user is promised: the time to the first token and tokens/s (default: 2s,20)";

export function slaText({ firstTokenMs, tokensPerSecond }: Sla): string {
  return `first token within ${firstTokenMs / 1000} s, ${tokensPerSecond} tokens/s each`;
}

export function servingText(serving: ServingReport): string {
  const { rows, most, users, promptTokens, answerTokens } = serving;
  const header = ["users", "first token (ms)", "tokens/s each", "all", "memory", "limited by", ""];
  const table = rows.map((row) => [
    String(row.users),
    digitsText(row.firstTokenMs),
    digitsText(row.tokensPerSecondEach),
    digitsText(row.tokensPerSecond),
    bytesText(row.memoryBytes),
    row.resource,
    row.failures.length === 0 ? "served" : `not: ${row.failures.join(", ")}`,
  ]);
  const asked = users === undefined ? undefined : rows.find((row) => row.users === users);
  const facts = [
    ["requests", `prompts of ${plural(promptTokens, "token")}, answers of ${answerTokens}`],
    [
      "at most",
      `${plural(most.users, "user")}; one more: ${most.failures.map(failureText).join(", ")}`,
    ],
  ];
  if (asked) {
    const isServed = asked.failures.length === 0;
    facts.push([
      plural(asked.users, "user"),
      isServed ? "can be served" : `no: ${asked.failures.map(failureText).join(", ")}`,
    ]);
  }
  return `${tableText([header, ...table], [0, 1, 2, 3, 4])}${tableText(facts)}`;
}

type Failure = ServingReport["rows"][number]["failures"][number];

const failureTexts: Readonly<Record<Failure, string>> = {
  "first token": "the last first token would come too late",
  "tokens/s": "each would get too few tokens/s",
  memory: "the memory would be too small",
};

function failureText(failure: Failure): string {
  return failureTexts[failure];
}

export function batchText({ batch }: ServingReport): string {
  if (!batch) return "";
  if (batch.atOnce === 0) return "The model does not fit in the memory.\n";
  const rows = [
    [
      "requests",
      `${batch.requests}, ${batch.atOnce} at a time (limited by ${batch.resource}); prompts of ${batch.promptTokens} tokens, answers of ${batch.answerTokens}`,
    ],
    ["time", `at least ${timeText(batch.seconds)}`],
    ["tokens", `at most ${Math.round(batch.tokensPerHour).toLocaleString("en")} an hour`],
  ];
  if (batch.cost !== undefined) {
    const perMillion = `${moneyText(batch.costPerMillionTokens!)} for a million generated tokens`;
    rows.push(["cost", `at least ${moneyText(batch.cost)}; ${perMillion}`]);
  }
  return tableText(rows);
}

/** The measured results beside their limits; or the command that measures them. */
export function servedText(
  { serving, model }: Pick<LimitsReport, "serving" | "model">,
  isHere: boolean,
): string {
  if (!serving) return "";
  if (serving.measured.length === 0) {
    if (!isHere || model.source === "built-in configuration") {
      return '"lantern bench serve -m MODEL" measures a model on its machine.\n';
    }
    return `Nothing was measured with this model here. To measure: lantern bench serve -m MODEL -p ${serving.promptTokens} -n ${serving.answerTokens}\n`;
  }
  const header = [
    "users",
    "prompt",
    "answer",
    "first p50 / p99 (ms)",
    "slowest",
    "all",
    "limit",
    "reached",
    "",
    "on",
  ];
  const rows = serving.measured.map((load) => [
    String(load.users),
    String(load.promptTokens),
    String(load.answerTokens),
    `${digitsText(load.firstP50Ms)} / ${digitsText(load.firstP99Ms)}`,
    digitsText(load.slowest),
    digitsText(load.tokensPerSecond),
    digitsText(load.limitTokensPerSecond),
    `${Math.round(load.fraction * 100)}%`,
    load.meetsSla ? "served" : "not",
    load.at.slice(0, 10),
  ]);
  return tableText([header, ...rows], [0, 1, 2, 3, 4, 5, 6, 7]);
}

/** At least three digits. */
export function digitsText(value: number): string {
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

function timeText(seconds: number): string {
  return seconds < 10 ? `${seconds.toPrecision(3)} s` : durationText(seconds);
}

function moneyText(amount: number): string {
  return amount >= 1 ? amount.toFixed(2) : String(Number(amount.toPrecision(2)));
}

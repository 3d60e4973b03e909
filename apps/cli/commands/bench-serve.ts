// lantern bench serve: the service of users who send to a server at the same moment, for several numbers of users: the
// time to the first token, the speed of each, the tokens of all, and the share of this machine's limit. The server is
// one of this process, or any OpenAI-compatible one (--url). Results of this process's server are stored: `lantern
// limits --users` shows them beside the limits.

import { type Command, Option } from "commander";
import { othersCores } from "../../../src/base/machine-load.ts";
import { withoutEnd } from "../../../src/base/without-end.ts";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import {
  inspect,
  type LimitsReport,
  limits,
  type MeasuredLoad,
  type Model,
  meetsSla,
  rememberedMachine,
  type Sla,
  storeServedLoads,
  UsageError,
} from "../../../src/index.ts";
import type { MachineLoad } from "../../../src/platform/node-cli.ts";
import { packageVersion } from "../../../src/platform/node-cli.ts";
import {
  type BenchOutputFlags,
  disturbedNote,
  jsonOption,
  machineJson,
  machineText,
  markdownOption,
  statusLine,
} from "../bench/options.ts";
import { renderTable } from "../bench/render.ts";
import {
  measureUsers,
  promptSize,
  promptSource,
  type ServerUnderTest,
  servedModels,
  type UsersResult,
} from "../bench/users.ts";
import type { CliContext } from "../command.ts";
import { numberFlag, numberListFlag } from "../flag-values.ts";
import { addModelFlags, type ModelFlags } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel, openModel } from "../load-model.ts";
import { type LimitFlags, limitOption, percentText, wantsLimits } from "../machine-limits.ts";
import { digitsText, slaFlag, slaHelp, slaText } from "../serving-text.ts";

interface ServeBenchFlags extends ModelFlags, LimitFlags, BenchOutputFlags {
  users: number[];
  prompt: number;
  predict: number;
  repetitions: number;
  sla: Sla;
  url?: string;
  servedModelName?: string;
}

const usualSla: Sla = { firstTokenMs: 2000, tokensPerSecond: 20 };
const usualUsers = [1, 2, 4, 8];
/** Prompts are words: some have more tokens than they should. */
const contextMargin = 1.25;
/** Answers that are shorter than this fraction of the requested length are worth a note. */
const shortAnswers = 0.9;

export function defineServe(command: Command, context: CliContext): void {
  addModelFlags(command, defaultModel, { warmup: true })
    .addOption(
      new Option(
        "--users <n,...>",
        "how many users ask at the same moment, one count after another",
      )
        .argParser(numberListFlag({ integer: true, min: 1, max: 1024 }))
        .default(usualUsers, usualUsers.join()),
    )
    .option(
      "-p, --prompt <n>",
      "tokens of each prompt, about",
      numberFlag({ integer: true, min: 2, max: 1 << 20 }),
      64,
    )
    .option(
      "-n, --predict <n>",
      "tokens of each answer",
      numberFlag({ integer: true, min: 2, max: 1 << 20 }),
      64,
    )
    .option(
      "-r, --repetitions <n>",
      "requests of each user",
      numberFlag({ integer: true, min: 1, max: 1000 }),
      2,
    )
    .option("--sla <time,rate>", slaHelp, slaFlag)
    .option(
      "--url <url>",
      "measure this OpenAI-compatible server instead of one in this process; -m then only names the model for the limit. LANTERN_API_KEY is sent as its key",
    )
    .option(
      "--served-model-name <name>",
      "name of the model at --url (default: the first of its /v1/models)",
    )
    .addOption(limitOption())
    .addOption(jsonOption())
    .addOption(markdownOption())
    .action((flags: Omit<ServeBenchFlags, "sla"> & { sla?: Sla }) =>
      benchServe({ sla: usualSla, ...flags }, context),
    );
}

async function benchServe(flags: ServeBenchFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  if (flags.servedModelName !== undefined && flags.url === undefined) {
    throw new UsageError(
      "bench serve: got --served-model-name without --url, expected both. Name a model of this machine with -m",
    );
  }
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const before = terminal.load();
  const measured =
    flags.url === undefined
      ? await measureHere(flags, context, signal)
      : await measureThere(flags, context, signal);
  const report: ServeReport = { ...measured, flags, before, after: terminal.load() };
  const machine = terminal.machine();
  terminal.out(
    flags.json
      ? `${JSON.stringify(reportJson(report, machine))}\n`
      : reportText(report, machineText(machine, report.before, report.after)),
  );
  const notes = [
    flags.url === undefined ? disturbedNote(measured.loads) : undefined,
    shortNote(measured.loads, flags),
    measured.note,
  ];
  for (const note of notes) {
    if (note) terminal.err(`${context.color().err.red(note)}\n`);
  }
}

interface Measured {
  /** For display. */
  readonly what: string;
  readonly loads: readonly Load[];
  /** The limits; undefined: not known. */
  readonly limits?: LimitsReport | undefined;
  readonly note?: string | undefined;
}

interface Load extends UsersResult {
  readonly othersCores: number;
}

interface ServeReport extends Measured {
  readonly flags: ServeBenchFlags;
  readonly before: MachineLoad;
  readonly after: MachineLoad;
}

/** A server in this process, with a slot for every user. */
async function measureHere(
  flags: ServeBenchFlags,
  context: CliContext,
  signal: AbortSignal,
): Promise<Measured> {
  const parallel = Math.max(...flags.users);
  const path = await locateModel(flags.model ?? defaultModel, context, signal);
  const ctxSize = flags.ctxSize ?? (await contextOf(path, flags));
  await using model = await openModel(path, { ...flags, parallel, ctxSize }, context, signal);
  const { startServer } = await import("../../server/serve.ts");
  const id = "bench";
  const server = await startServer({
    models: { [id]: model },
    version: packageVersion(),
    port: 0,
    parallel,
    queue: parallel,
    graceMs: 0,
    log: (line) => context.terminal.err(`lantern: ${line}\n`),
  });
  try {
    const target = targetOf(server.url, id, context, signal);
    const loads = await measureLoads(target, flags, context);
    const known = await limitsOf(path, model, flags, context, loads);
    return { what: model.info.name, loads, ...known };
  } finally {
    await server.stop();
  }
}

async function measureThere(
  flags: ServeBenchFlags,
  context: CliContext,
  signal: AbortSignal,
): Promise<Measured> {
  const url = serverUrl(flags.url!);
  const anyModel = targetOf(url, "", context, signal);
  const name = flags.servedModelName ?? (await servedModels(anyModel))[0];
  if (name === undefined) {
    throw new UsageError(
      `bench serve: ${url} has no model, expected one. Load one there, or name it with --served-model-name`,
    );
  }
  const loads = await measureLoads({ ...anyModel, model: name }, flags, context);
  const what = `${name} at ${url}`;
  if (flags.model === undefined || !wantsLimits(flags, context)) return { what, loads };
  // A server at --url may run elsewhere: its results are compared, but not stored as this machine's.
  const machine = await rememberedMachine();
  const report =
    machine &&
    (await limits(flags.model, { machine: async () => machine, ...servingOf(flags, loads) }));
  return { what, loads, limits: report };
}

function serverUrl(text: string): string {
  const url = URL.parse(text);
  if (url?.protocol === "http:" || url?.protocol === "https:") {
    return withoutEnd(text, "/").replace(/\/v1$/, "");
  }
  throw new UsageError(
    `bench serve: --url: got "${text}", expected an address as in http://127.0.0.1:8080`,
  );
}

function targetOf(
  url: string,
  model: string,
  { terminal, downloads }: CliContext,
  signal: AbortSignal,
): ServerUnderTest {
  const apiKey = terminal.env("LANTERN_API_KEY");
  const fetcher: typeof fetch = (...request) => downloads.fetch(...request);
  return { url, model, apiKey, fetch: fetcher, now: () => performance.now(), signal };
}

/** The context of one request. A model with a smaller context is refused before anything is loaded. */
async function contextOf(path: string, { prompt, predict }: ServeBenchFlags): Promise<number> {
  const needed = Math.ceil((prompt * contextMargin + predict + 32) / 32) * 32;
  const most = (await inspect(path, { contextSize: needed })).memory?.contextSize ?? needed;
  if (prompt + predict <= most) return Math.min(needed, most);
  throw new UsageError(
    `bench serve: got prompts of ${prompt} tokens and answers of ${predict}, expected at most ${most} together, the model's context. Use smaller -p and -n`,
  );
}

async function measureLoads(
  server: ServerUnderTest,
  { users, prompt, predict, repetitions }: ServeBenchFlags,
  { terminal }: CliContext,
): Promise<Load[]> {
  const status = statusLine(terminal);
  const prompts = promptSource();
  status("warming up");
  const size = await promptSize(server, prompt, prompts);
  const request = { size, answerTokens: predict, prompts };
  await measureUsers(server, 1, 1, request);
  const loads: Load[] = [];
  for (const count of users) {
    status(`${count} of ${users.join()} users`);
    const before = terminal.load();
    const result = await measureUsers(server, count, repetitions, request);
    loads.push({ ...result, othersCores: othersCores(before, terminal.load()) });
  }
  status("");
  return loads;
}

/** Stores the results, and compares them with the limits of this machine if it was measured. */
async function limitsOf(
  path: string,
  { info }: Model,
  flags: ServeBenchFlags,
  context: CliContext,
  loads: readonly Load[],
): Promise<Pick<Measured, "limits" | "note">> {
  // A GPU serves other numbers of users, and the stored ones are the processor's.
  if (info.backend.placement.some(({ isDevice }) => isDevice)) return {};
  const machine = wantsLimits(flags, context) ? await rememberedMachine() : undefined;
  const held = info.heldAs && info.heldAs.matrices > 0 ? { weights: info.heldAs.type } : {};
  const options = { kv: info.kvType, ...held, ...servingOf(flags, loads) };
  const report = await limits(path, {
    ...options,
    // The model's name and size are the same on any device.
    ...(machine
      ? { machine: async () => machine, threads: info.backend.threads }
      : { device: "rtx4090" }),
  });
  const { model, memory } = report;
  const stored = { name: model.name, storedBytes: memory.storedBytes, kvBits: model.bits.kv };
  const failed = await storeServedLoads(stored, options.servedLoads).then(
    () => undefined,
    (error: Error) => error.message,
  );
  const unknown =
    machine || !wantsLimits(flags, context)
      ? undefined
      : 'This machine\'s limits are not known yet; "lantern machine" measures them.';
  return { limits: machine && report, note: failed ?? unknown };
}

function servingOf(
  { sla, prompt, predict }: ServeBenchFlags,
  loads: readonly Load[],
): { serving: NonNullable<Parameters<typeof limits>[1]>["serving"]; servedLoads: MeasuredLoad[] } {
  const at = new Date().toISOString();
  return {
    serving: { sla, promptTokens: prompt, answerTokens: predict },
    servedLoads: loads.map((load) => ({
      users: load.users,
      firstP50Ms: load.firstP50Ms,
      firstP99Ms: load.firstP99Ms,
      slowest: load.slowest,
      median: load.median,
      tokensPerSecond: load.tokensPerSecond,
      othersCores: load.othersCores,
      promptTokens: prompt,
      answerTokens: predict,
      at,
    })),
  };
}

function shortNote(loads: readonly Load[], { predict }: ServeBenchFlags): string | undefined {
  const least = Math.min(...loads.map(({ answerTokens }) => answerTokens));
  return least >= shortAnswers * predict
    ? undefined
    : `The server ended answers early: they had ${least.toFixed(0)} tokens on average, not ${predict}.`;
}

/** The largest number of users that was measured within the agreement; 0: none. */
function mostServed(loads: readonly Load[], sla: Sla): number {
  return Math.max(0, ...loads.filter((load) => meetsSla(load, sla)).map(({ users }) => users));
}

function reportJson(
  { what, loads, limits: report, flags, before, after }: ServeReport,
  machine: ReturnType<CliContext["terminal"]["machine"]>,
): object {
  const { firstTokenMs, tokensPerSecond } = flags.sla;
  return {
    model: what,
    url: flags.url ?? null,
    machine: machineJson(machine),
    load: { before: before.loadAverage ?? null, after: after.loadAverage ?? null },
    prompt_tokens: flags.prompt,
    answer_tokens: flags.predict,
    repetitions: flags.repetitions,
    sla: { first_token_ms: firstTokenMs, tokens_per_second: tokensPerSecond },
    most_users: mostServed(loads, flags.sla),
    results: loads.map((load, i) => ({
      users: load.users,
      first_token_ms: { p50: load.firstP50Ms, p99: load.firstP99Ms },
      tokens_per_second_each: { median: load.median, slowest: load.slowest },
      tokens_per_second: load.tokensPerSecond,
      tokens_per_second_with_prompts: load.allTokensPerSecond ?? null,
      counted: { prompt_tokens: load.promptTokens ?? null, answer_tokens: load.answerTokens },
      meets_sla: meetsSla(load, flags.sla),
      others_cores: load.othersCores,
      limit: limitJson(report, i),
    })),
  };
}

function prompts({ allTokensPerSecond }: Load): string {
  return allTokensPerSecond === undefined ? "" : digitsText(allTokensPerSecond);
}

function limitJson(report: LimitsReport | undefined, index: number): object | null {
  const one = report?.serving?.measured[index];
  return one ? { tokens_per_second: one.limitTokensPerSecond, fraction: one.fraction } : null;
}

function reportText(report: ServeReport, machine: string): string {
  const { what, loads, limits: known, flags } = report;
  const measured = known?.serving?.measured;
  const header = ["users", "first p50", "p99 (ms)", "each", "slowest", "all (tokens/s)"];
  const countsPrompts = loads.some(({ allTokensPerSecond }) => allTokensPerSecond !== undefined);
  if (countsPrompts) header.push("with prompts");
  if (measured) header.push("limit", "of limit");
  header.push("served");
  const rows = loads.map((load, i) => [
    String(load.users),
    digitsText(load.firstP50Ms),
    digitsText(load.firstP99Ms),
    digitsText(load.median),
    digitsText(load.slowest),
    digitsText(load.tokensPerSecond),
    ...(countsPrompts ? [prompts(load)] : []),
    ...(measured
      ? [digitsText(measured[i]!.limitTokensPerSecond), percentText(measured[i]!.fraction)]
      : []),
    meetsSla(load, flags.sla) ? "yes" : "no",
  ]);
  const right = header.map((_, column) => column).slice(0, -1);
  const table = renderTable({ header, rows, right }, flags.markdown ?? false);
  const lengths = `prompts of ${flags.prompt} tokens, answers of ${flags.predict}`;
  const where = flags.url === undefined ? `\n${machine}` : "";
  const most = mostServed(loads, flags.sla);
  const counts = flags.users.join(", ");
  const verdict =
    most === 0
      ? `None of ${counts} users at once get this service: ${slaText(flags.sla)}.`
      : `Of ${counts} users at once, up to ${most} get this service: ${slaText(flags.sla)}.`;
  return `${what}: ${lengths}${where}\n\n${table}\n${verdict}\n`;
}

// lantern models: the models that can be named, which of them are on this machine, whether each fits, and how many
// tokens per second to expect.

import { listMade, type MadeEntry } from "../../../src/catalog/derived.ts";
import { diskUse, type ModelListing } from "../../../src/catalog/list.ts";
import { architectures, type ModelFit } from "../../../src/index.ts";
import { clearCache, listCache } from "../cache-text.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { measureOnce, wantsLimits } from "../machine-limits.ts";
import { type FittedModel, listWithFits } from "../model-fits.ts";
import { bytesText, tableText } from "../text.ts";

interface ModelsFlags {
  json?: boolean;
  architectures?: boolean;
  cache?: boolean;
  /** true: of all models. */
  clearCache?: string | true;
  cacheFolder?: string;
  yes?: boolean;
}

export const modelsCommand: CommandBody = {
  examples: [
    "lantern models",
    "lantern models --architectures",
    "lantern models --cache",
    "lantern models --clear-cache --yes",
    "lantern models --json",
  ],
  define(command, context) {
    command
      .option(
        "--architectures",
        "list the architectures that are supported, and what each was held against",
      )
      .option(
        "--cache",
        "list copies of conversations on disk by model, their budgets, and how often running servers used them (docs/use/cache.md)",
      )
      .option("--clear-cache [model]", "delete the copies on disk, of one model or of all")
      .option(
        "--cache-folder <path>",
        "folder of the copies on disk (default: in the cache folder)",
      )
      .option("-y, --yes", "delete without asking")
      .option("--json", "print one JSON array, or with --cache one object")
      .action((flags: ModelsFlags) => models(flags, context));
  },
};

/** A short measurement, because the user waits for the list. */
const quickSeconds = 2.5;

const stateTexts: Record<ModelListing["state"], string> = {
  installed: "installed",
  cached: "in the cache",
  partial: "incomplete",
  linked: "elsewhere",
  given: "given to the server",
  absent: "-",
};

const fitTexts: Record<ModelFit["fits"], string> = {
  now: "yes",
  tight: "tight",
  no: "no",
  unknown: "?",
};

async function models(flags: ModelsFlags, context: CliContext): Promise<void> {
  const { terminal, downloads } = context;
  if (flags.architectures) {
    listArchitectures(flags, context);
    return;
  }
  if (flags.clearCache !== undefined) return await clearCache(flags, context);
  if (flags.cache) return await listCache(flags, context);
  if (!flags.json && terminal.errIsTerminal && wantsLimits({ limit: true }, context)) {
    await measureOnce(context, { seconds: quickSeconds });
  }
  const listings = await listWithFits(downloads);
  const made = await listMade(downloads);
  if (flags.json) {
    terminal.out(`${JSON.stringify([...listings, ...made.map(madeJson)])}\n`);
    return;
  }
  const header = ["NAME", "SIZE", "HERE", "FITS", "TOKENS/S", "LIMIT", "LICENCE", "WHAT IT IS"];
  const rows = listings.map((model) => {
    const size = model.sha256 || model.path ? bytesText(model.bytes) : `~${bytesText(model.bytes)}`;
    const { fits, expected, limit } = model.fit;
    const speeds = fits === "no" ? ["-", "-"] : [speedText(expected), speedText(limit)];
    const here = stateTexts[model.state];
    return [model.name, size, here, fitTexts[fits], ...speeds, model.licence, model.description];
  });
  const madeRows = made.map((one) => [
    one.name,
    "-",
    "made",
    ...["-", "-", "-", "-"],
    madeText(one),
  ]);
  terminal.out(tableText([header, ...rows, ...madeRows], [1, 4, 5]));
  const notes = [...speedNotes(listings), ...(await placeNotes(listings, context))];
  terminal.out(`\n${context.color().out.dim(notes.join("\n"))}\n`);
}

/** A model that was made from another one with Ollama's API: `lantern serve` serves it. */
function madeText({ made, problem }: MadeEntry): string {
  return made ? `made from ${made.from}, for "lantern serve"` : `damaged: ${problem}`;
}

function madeJson({ name, made, problem }: MadeEntry): object {
  return made ? { state: "made", ...made } : { name, state: "damaged", problem };
}

function listArchitectures({ json }: ModelsFlags, { terminal, color }: CliContext): void {
  const known = architectures();
  if (json) {
    terminal.out(`${JSON.stringify(known)}\n`);
    return;
  }
  terminal.out(
    tableText([["ARCHITECTURE", "MODELS"], ...known.map(({ name, models }) => [name, models])], []),
  );
  const against = [...new Set(known.map(({ heldAgainst }) => heldAgainst))];
  const notes = [
    `${known.length} architectures (general.architecture of a GGUF file). Held against ${against.join("; ")}.`,
    '"lantern inspect FILE" shows the architecture of a file.',
  ];
  terminal.out(`\n${color().out.dim(notes.join("\n"))}\n`);
}

function speedText(tokensPerSecond: number | undefined): string {
  if (tokensPerSecond === undefined) return "-";
  return tokensPerSecond.toFixed(tokensPerSecond < 10 ? 1 : 0);
}

/** The meaning of the numbers, and their source. */
function speedNotes(listings: readonly FittedModel[]): string[] {
  const fits = listings.map(({ fit }) => fit).filter(({ limit }) => limit !== undefined);
  const tight = listings.some(({ fit }) => fit.fits === "tight");
  const about = tight ? ["FITS tight: it fits if other programs free memory."] : [];
  if (fits.length === 0) {
    return [
      ...about,
      'Speeds are shown once this machine has been measured: "lantern machine" measures it.',
    ];
  }
  const shares = [...new Set(fits.map((fit) => shareText(fit)))];
  return [
    ...about,
    "LIMIT: the tokens per second that this machine's memory bandwidth and arithmetic allow on the CPU, after 512 tokens of text.",
    `TOKENS/S: what the model will probably reach, as a fraction of the limit: ${shares.join("; ")}.`,
  ];
}

function shareText({ share, basis, runs }: ModelFit): string {
  const percent = `${Math.round(share! * 100)}%`;
  const count = `${runs} run${runs === 1 ? "" : "s"}`;
  if (basis === "this type") return `${percent}, as in ${count} here with weights of this type`;
  if (basis === "this machine")
    return `${percent}, as in ${count} here with weights of other types`;
  return `${percent}, as on other machines, until a model of that size has run here`;
}

async function placeNotes(
  listings: readonly FittedModel[],
  { downloads }: CliContext,
): Promise<string[]> {
  const { cacheFolder } = downloads;
  const free = await downloads.freeBytes(cacheFolder);
  const room = free === undefined ? "" : `, ${bytesText(free)} free`;
  const used = bytesText(diskUse(listings));
  return [
    `"lantern pull NAME" downloads one, "lantern pull owner/repo" any other from the Hugging Face hub.`,
    `Downloaded models are in ${cacheFolder}: ${used}${room}. "lantern rm NAME" deletes one.`,
  ];
}

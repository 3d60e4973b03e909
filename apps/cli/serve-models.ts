// The models that one server starts with: those that -m, --story-model, --chat-model and --alias name, the check that
// all of them fit in memory together, and opening them one after the other.

import type { Command } from "commander";
import { messageOf } from "../../src/base/errors.ts";
import { defaultModel } from "../../src/catalog/catalog.ts";
import { inspect, MemoryError, type Model, UsageError } from "../../src/index.ts";
import type { CliContext } from "./command.ts";
import { modelHelp } from "./flag-help.ts";
import { byteSizeFlag, numberFlag, onceFlag, repeatedFlag } from "./flag-values.ts";
import { kvTypeOf, type ModelFlags } from "./flags.ts";
import { type ChosenOptions, orChosen } from "./load-choices.ts";
import { locateModel, openModel } from "./load-model.ts";
import { bytesText } from "./text.ts";

export interface ServeModelFlags {
  model?: string[];
  storyModel?: string;
  chatModel?: string;
  alias?: string[];
  modelsDir?: string;
  modelsPreset?: string;
  modelsMax?: number;
  modelsMemory?: number;
  modelsAutoload?: boolean;
}

/** A model of the command line. */
export interface WantedModel {
  /** As given: a path, or a name of the catalog. */
  readonly name: string;
  readonly location: string;
  /** Its name for clients, and further names that they may use. */
  readonly id: string;
  readonly aliases: readonly string[];
}

export interface WantedModels {
  readonly models: readonly WantedModel[];
  /** The models that the pages of the web app begin with, by id. */
  readonly pages: { readonly story?: string; readonly chat?: string };
}

/** -m, --story-model, --chat-model, --alias */
export function addServeModelFlags(command: Command): Command {
  return command
    .option(
      "-m, --model <model>",
      `${modelHelp(defaultModel)}; repeatable: requests choose by name, and get the first if they name none`,
      repeatedFlag,
    )
    .option(
      "--story-model <model>",
      "the model of the Story page, loaded beside the others",
      onceFlag,
    )
    .option(
      "--chat-model <model>",
      "the model of the Chat page, loaded beside the others",
      onceFlag,
    )
    .option(
      "-a, --alias <name>",
      "name of the model for clients (default: its own name, or its file's); repeatable: one for each model, in their order",
      repeatedFlag,
    )
    .option(
      "--models-dir <folder>",
      "serve the models of a folder: the first request for one loads it",
      onceFlag,
    )
    .option(
      "--models-preset <path>",
      "file of settings for each model, in TOML or JSON; read again on SIGHUP (docs/use/server-models.md)",
      onceFlag,
    )
    .option(
      "--models-max <n>",
      "how many models are in memory at a time, the least recently used leave first; 0: as many as fit",
      numberFlag({ integer: true, min: 0, max: 1024 }),
      0,
    )
    .option(
      "--models-memory <size>",
      "memory for all models together, as in 8G (default: what is free)",
      byteSizeFlag,
    )
    .option(
      "--models-autoload",
      "let requests load models of this machine by their names (default, unless -m names the models)",
    )
    .option("--no-models-autoload", "load models only at the start and when asked to");
}

/** Which models are loaded on demand. */
export function onDemandKind(flags: ServeModelFlags): { isOn: boolean; catalog: boolean } {
  const { modelsDir, modelsPreset, modelsAutoload } = flags;
  const isNamed = [flags.model?.[0], flags.storyModel, flags.chatModel].some((one) => one);
  const catalog = modelsAutoload === true || (!isNamed && modelsDir === undefined);
  return { isOn: catalog || modelsDir !== undefined || modelsPreset !== undefined, catalog };
}

/** A named item of a flag. */
interface Named {
  flag: "-m" | "--story-model" | "--chat-model";
  name: string;
}

/** Locates the models (and downloads those of the catalog), and names them. */
export async function wantedModels(
  flags: ServeModelFlags,
  context: CliContext,
  signal: AbortSignal,
): Promise<WantedModels> {
  const named = namedModels(flags);
  checkAliases(flags.alias ?? [], new Set(named.map(({ name }) => name)).size);
  const found = new Map<string, Named[]>();
  for (const one of named) {
    const location = await locateModel(one.name, context, signal);
    const same = found.get(location) ?? [];
    const twice = one.flag === "-m" && same.find(({ flag }) => flag === "-m");
    if (twice) {
      throw new UsageError(
        `flags: -m ${twice.name} and -m ${one.name} are the same model, expected different ones. Drop one`,
      );
    }
    found.set(location, [...same, one]);
  }
  checkAliases(flags.alias ?? [], found.size);
  const models = withNames(found, flags.alias ?? []);
  const idOf = (flag: Named["flag"]): string | undefined => {
    const at = [...found.values()].findIndex((all) => all.some((one) => one.flag === flag));
    return models[at]?.id;
  };
  const [story, chat] = [idOf("--story-model"), idOf("--chat-model")];
  return { models, pages: { ...(story && { story }), ...(chat && { chat }) } };
}

function namedModels(flags: ServeModelFlags): Named[] {
  const { model = [], storyModel, chatModel, modelsDir, modelsPreset } = flags;
  const named: Named[] = model.map((name) => ({ flag: "-m", name }));
  if (storyModel !== undefined) named.push({ flag: "--story-model", name: storyModel });
  if (chatModel !== undefined) named.push({ flag: "--chat-model", name: chatModel });
  const isElsewhere = modelsDir !== undefined || modelsPreset !== undefined;
  return named.length > 0 || isElsewhere ? named : [{ flag: "-m", name: defaultModel }];
}

function checkAliases(aliases: readonly string[], count: number): void {
  const twice = aliases.find((alias, at) => aliases.indexOf(alias) < at);
  if (twice !== undefined) {
    throw new UsageError(
      `flags: --alias ${twice} was given twice, expected a name of its own for each model`,
    );
  }
  if (aliases.length <= count) return;
  throw new UsageError(
    `flags: got --alias ${aliases.length} times for ${count} model${count === 1 ? "" : "s"}, expected it at most once for each. Drop one, or add its model with -m`,
  );
}

function withNames(
  found: ReadonlyMap<string, readonly Named[]>,
  aliases: readonly string[],
): WantedModel[] {
  const models = [...found].map(([location, [first]], at) => {
    const own = shortName(first!.name);
    const names = [own, shortName(location), lastPart(location)];
    return { name: first!.name, location, id: aliases[at] ?? own, names };
  });
  for (const [at, { id, name }] of models.entries()) {
    const other = models.slice(0, at).find((one) => one.id === id);
    if (!other) continue;
    throw new UsageError(
      `flags: ${other.name} and ${name} would both be served as "${id}". Give them different names with --alias, one for each model, in their order`,
    );
  }
  const isTaken = (alias: string, at: number): boolean =>
    models.some(({ id, names }, other) => id === alias || (other !== at && names.includes(alias)));
  return models.map(({ names, ...model }, at) => ({
    ...model,
    aliases: [...new Set(names)].filter((alias) => !isTaken(alias, at)),
  }));
}

/** "models/tiny.Q4_0.gguf" -> "tiny.Q4_0": a path reveals more of this machine than clients should know. */
function shortName(name: string): string {
  return lastPart(name).replace(/\.(gguf|bin)$/i, "");
}

export function lastPart(path: string): string {
  return path.split(/[\\/]/).findLast((part) => part !== "") ?? path;
}

/**
 * Opens them in their order; if one cannot be opened, the others are closed again. `templates`: chat templates, by id.
 */
export async function openServed(
  { models }: WantedModels,
  flags: ModelFlags,
  templates: Readonly<Record<string, string>>,
  context: CliContext,
  signal: AbortSignal,
  chosen: ChosenOptions,
): Promise<Record<string, Model>> {
  await checkMemoryOfAll(models, flags, context);
  const opened: [string, Model][] = [];
  try {
    for (const { id, name, location } of models) {
      const template = Object.hasOwn(templates, id) ? templates[id] : undefined;
      const given = { ...flags, ...(template !== undefined && { template }) };
      const label = models.length > 1 ? `loading ${id}` : undefined;
      const load = (how: ModelFlags) => openModel(name, how, context, signal, label);
      const choices = chosen.of(location);
      if (Object.keys(choices).length === 0) opened.push([id, await load(given)]);
      else {
        const model = await load(orChosen(given, choices)).catch((error: unknown) => {
          if (!(error instanceof MemoryError)) throw error;
          context.log.warn(
            `Warning: ${id} is loaded without the options that were chosen in the web app: ${messageOf(error)}\n`,
          );
          return load(given);
        });
        opened.push([id, model]);
      }
    }
    return Object.fromEntries(opened);
  } catch (error) {
    await closeServed(Object.fromEntries(opened));
    throw error;
  }
}

export async function closeServed(opened: Readonly<Record<string, Model>>): Promise<void> {
  await Promise.all(Object.values(opened).map((model) => model.dispose()));
}

/**
 * Several models are refused before the first is read if they do not fit together. A single one is checked by its
 * engine, and so is one on a GPU, whose memory only the engine knows.
 */
async function checkMemoryOfAll(
  models: readonly WantedModel[],
  flags: ModelFlags,
  { downloads }: CliContext,
): Promise<void> {
  const { ctxSize, weights, backend, gpuLayers } = flags;
  const kvType = kvTypeOf(flags);
  const isOnCpu = (backend === undefined || backend === "cpu") && !gpuLayers;
  if (models.length < 2 || !isOnCpu) return;
  const needs = await Promise.all(
    models.map(async ({ id, location }) => {
      const { memory } = await inspect(location, {
        ...(ctxSize !== undefined && { contextSize: ctxSize }),
        ...(kvType !== undefined && { kvType }),
        weights,
      });
      return { id, bytes: memory?.totalBytes ?? 0 }; // a file without a model is refused when it is opened
    }),
  );
  const total = needs.reduce((sum, { bytes }) => sum + bytes, 0);
  const free = downloads.freeMemoryBytes();
  if (total <= free) return;
  const each = needs.map(({ id, bytes }) => `${id} ${bytesText(bytes)}`).join(", ");
  throw new MemoryError(
    `serve: the ${models.length} models do not fit in memory together: they need ${bytesText(total)} (${each}; weights, one context and working memory), but this machine has ${bytesText(free)} free. Serve fewer, use smaller ones, or a smaller context (-c)`,
  );
}

// lantern serve: a model behind HTTP, for OpenAI's, Anthropic's, Ollama's and llama.cpp's clients. Flags and printed
// lines are here; the server itself is apps/server, put together by apps/server/serve.ts.

import { Option } from "commander";
import { messageOf } from "../../../src/base/errors.ts";
import { findBlob, pruneBlobs, writeBlob } from "../../../src/catalog/blobs.ts";
import { listMade, removeDerived, writeDerived } from "../../../src/catalog/derived.ts";
import { announceServer, type ServerRecord } from "../../../src/catalog/servers.ts";
import type { Model, Pooling } from "../../../src/index.ts";
import { UsageError } from "../../../src/index.ts";
import { openInBrowser, webAssets } from "../../../src/platform/node-assets.ts";
import { packageVersion } from "../../../src/platform/node-cli.ts";
import { defaultDatabaseFile, openNodeDatabase } from "../../../src/platform/node-database.ts";
import { nodeBackups } from "../../../src/platform/node-database-backups.ts";
import { socketFileOf } from "../../server/host-names.ts";
import {
  type ModelLibrary,
  type ReasoningFormat,
  type RunningServer,
  reasoningFormats,
  type StartOptions,
  type SystemReading,
} from "../../server/serve.ts";
import {
  type AccessFlags,
  type AccessOptions,
  accessOptions,
  addAccessFlags,
} from "../access-flags.ts";
import { batchPlace } from "../batch-place.ts";
import { openServers } from "../chat-tools.ts";
import { addClusterFlags, type ClusterFlags } from "../cluster-flags.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { shiftWarning } from "../context-flags.ts";
import { addTuneFlag, idleTune, type TuneFlag } from "../first-tune.ts";
import { effortHelp, templateHelp } from "../flag-help.ts";
import { effortFlag, keepAliveFlag, numberFlag, objectFlag } from "../flag-values.ts";
import {
  addRuntimeFlags,
  addSamplingFlags,
  addStateCacheFlags,
  generateOptions,
  type ModelFlags,
  poolingOption,
  type SamplingFlags,
} from "../flags.ts";
import { grammarOptions, warnOfGrammar } from "../grammar-flags.ts";
import { addHiddenFlags } from "../hidden-flags.ts";
import { IdleWork, workWhileIdle } from "../idle-work.ts";
import { interruptible } from "../interrupt.ts";
import { ChosenOptions } from "../load-choices.ts";
import { idleMeasurement, measureBefore, noteTo } from "../machine-limits.ts";
import {
  addModelSourceFlags,
  type ModelSourceFlags,
  namedSources,
  withSources,
} from "../model-source-flags.ts";
import { type PresetFile, parsePresets, readPresets } from "../models-preset.ts";
import { type LocatedModels, onDemandModels } from "../on-demand.ts";
import { addReachFlags, hidesPage, type ReachFlags, reachOptions } from "../reach-flags.ts";
import { joinAsGateway } from "../serve-cluster.ts";
import { catalogLibrary } from "../serve-library.ts";
import {
  addServeModelFlags,
  closeServed,
  lastPart,
  onDemandKind,
  openServed,
  type ServeModelFlags,
  type WantedModels,
  wantedModels,
} from "../serve-models.ts";

interface ServeFlags
  extends Omit<ModelFlags, "model">,
    ServeModelFlags,
    SamplingFlags,
    TuneFlag,
    AccessFlags,
    ReachFlags,
    ModelSourceFlags,
    ClusterFlags {
  parallel: number;
  queue: number;
  grace: number;
  chatTemplate?: string;
  chatTemplateFile?: string;
  reasoning: "on" | "off" | "auto";
  reasoningFormat: ReasoningFormat;
  reasoningBudget: number;
  reasoningEffort?: string;
  reasoningBudgetMessage?: string;
  strictModel?: boolean;
  strictFields?: boolean;
  slots: boolean;
  slotSavePath?: string;
  keepAlive?: number;
  metrics: boolean;
  verbose?: boolean;
  pooling?: Pooling;
  embeddings?: boolean;
  embdNormalize?: number;
  chatTemplateKwargs?: Record<string, unknown>;
  tags?: string;
  prefillAssistant: boolean;
  reasoningPreserve?: boolean;
  reranking?: boolean;
  /** A file; false: none. */
  sessions?: string | false;
  restoreSessions?: boolean;
  /** A file; false: none. */
  batches?: string | false;
  mcpConfig?: string;
  web: boolean;
  open?: boolean;
  json?: boolean;
}

export const serveCommand: CommandBody = {
  examples: [
    "lantern serve",
    "lantern serve -m tinyllama-chat --port 8000 --parallel 4",
    "lantern serve --story-model stories15m --chat-model tinyllama-chat",
    "LANTERN_API_KEY=secret LANTERN_ADMIN_KEY=other lantern serve --host 0.0.0.0",
  ],
  define(command, context) {
    addStateCacheFlags(
      addRuntimeFlags(addServeModelFlags(command), { warmup: true, usesGpu: true }),
      true,
    )
      .option(
        "--chat-template <name>",
        `${templateHelp}, or the text of a Jinja template, or the path of a file with one (default: the model's own)`,
      )
      .option("--chat-template-file <path>", "read the Jinja template from a file")
      .option(
        "--strict-model",
        "refuse requests that name another model (default: a server with one model answers them)",
      )
      .option(
        "--strict-fields",
        "refuse requests with fields that are otherwise ignored and named in x-lantern-ignored-fields",
      );
    addAccessFlags(addReachFlags(addModelSourceFlags(addClusterFlags(command))))
      .option(
        "--parallel <n>",
        "how many requests are answered at the same time; -1: 8 (also: -np)",
        numberFlag({ integer: true, min: 1, max: 1024, also: -1 }),
        8,
      )
      .option(
        "--queue <n>",
        "how many more requests may wait for their turn",
        numberFlag({ integer: true, min: 0, max: 65536 }),
        64,
      )
      .option(
        "--sessions <file>",
        "file in which conversations are kept (default: in the folder LANTERN_DATA, or the user's data folder)",
      )
      .option("--no-sessions", "do not save conversations")
      .option(
        "--restore-sessions",
        "add conversations that are missing or damaged from the newest good backup, before serving",
      )
      .option(
        "--batches <file>",
        "where files and batches are kept; their bytes are in a folder beside it (default: batches.db beside the conversations; with --no-sessions there are none)",
      )
      .option("--no-batches", "no files and no batches")
      .option(
        "--mcp-config <file>",
        "let the web app call tools of the MCP servers in this file, on this machine: docs/library/tools.md (default: it can call none)",
      )
      .option("--web", "serve the web app (default; also: --ui)", true)
      .option("--no-web", "serve only the APIs, not the web app")
      .option("--slots", "answer GET /slots (default)", true)
      .option("--no-slots", "do not answer GET /slots")
      .option(
        "--slot-save-path <folder>",
        "folder in which POST /slots/ID?action=save saves the state of a slot; only this user can read the files (default: slots cannot be saved)",
      )
      .option(
        "--keep-alive <time>",
        "how long a model stays in memory after its last request, in seconds or as in 5m, 1h30m; 0: not at all, -1: until the server ends (default). The next request loads it again; requests of Ollama's API may ask for another time (also: --sleep-idle-seconds)",
        keepAliveFlag,
      )
      .option("--metrics", "answer GET /metrics (default)", true)
      .option("--no-metrics", "do not answer GET /metrics")
      .option("--verbose", "add llama.cpp's __verbose to every answer")
      .option("--open", "open the web app in a browser")
      .option(
        "--json",
        "print one JSON object when the server is ready: url, pageUrl, token, model (the first), models",
      )
      .option("--profile", "record where the time goes, for the Machine page of the web app")
      .option(
        "--hang-timeout <s>",
        "restart a model's engine that has not responded for this many seconds; 0: never",
        numberFlag({ min: 1, also: 0 }),
        60,
      )
      .option(
        "--grace <s>",
        "how long running requests may take after Ctrl-C, in seconds",
        numberFlag({ min: 0 }),
        5,
      );
    command
      .addOption(poolingOption())
      .option(
        "--embeddings",
        "answer only requests for embeddings, for a model that was made for them (also: --embedding)",
      )
      .option(
        "--reranking",
        "answer only requests for embeddings and for ranks (/v1/rerank), with a model that scores documents (also: --rerank)",
      )
      .option(
        "--embd-normalize <n>",
        "norm of embeddings, unless a request has embd_normalize; -1: none, 0: the largest is 32760, 1: sum, 2: length, more: p-norm (default: 2)",
        numberFlag({ integer: true, min: -1, max: 1024 }),
      )
      .option(
        "--chat-template-kwargs <json>",
        "variables of chat templates, unless a request sets them, as in '{\"enable_thinking\": false}'",
        objectFlag,
      )
      .option(
        "--prefill-assistant",
        "go on with a conversation's last message if that is an assistant's (default)",
        true,
      )
      .option("--no-prefill-assistant", "answer it as any other message")
      .option(
        "--reasoning-preserve",
        "keep the reasoning of earlier answers in the prompt, with templates that know preserve_thinking or clear_thinking",
      )
      .option("--no-reasoning-preserve", "leave it out, with such templates")
      .option("--tags <list>", "words about the models, separated by commas, for lists of models");
    command.addOption(
      new Option(
        "--reasoning <mode>",
        "whether reasoning models think before they answer; auto: as the request says",
      )
        .choices(["on", "off", "auto"])
        .default("auto"),
    );
    command
      .addOption(
        new Option(
          "--reasoning-format <format>",
          "where reasoning goes; none: it stays in the text, others: apart from it",
        )
          .choices([...reasoningFormats])
          .default("auto"),
      )
      .option(
        "--reasoning-budget <n>",
        "tokens after which reasoning is ended; 0: at once, -1: never",
        numberFlag({ integer: true, min: -1 }),
        -1,
      )
      .option("--reasoning-effort <level>", effortHelp, effortFlag)
      .option("--reasoning-budget-message <text>", "text before the mark that ends reasoning");
    addHiddenFlags(addTuneFlag(addSamplingFlags(command)), context);
    command.version(packageVersion(), "--version", "print the version");
    command.action((flags: ServeFlags) => {
      const isDefault = (name: string) => command.getOptionValueSource(name) === "default";
      // The workers of a cluster have queues of their own.
      const usual = flags.cluster === undefined ? 8 : 1024;
      const parallel = isDefault("parallel") || flags.parallel < 0 ? usual : flags.parallel;
      // If the command line has no flag, the choice of the app counts.
      const { cacheType: _, ...rest } = flags;
      const given = isDefault("cacheType") ? rest : flags;
      return serve({ ...given, parallel }, context, isDefault("port"));
    });
  },
};

/** The models of a cluster are announced by its workers. */
const noModels: WantedModels = { models: [], pages: {} };

/** `anyPort`: the user gave no port, so another is used when it is taken. */
async function serve(typed: ServeFlags, outer: CliContext, anyPort: boolean): Promise<void> {
  const { terminal } = outer;
  const flags = { ...typed, ...namedSources(typed) };
  const context = withSources(outer, typed);
  using interrupt = interruptible(terminal);
  const access = await accessOptions(flags, context); // errors are reported before a model is loaded
  const reach = await reachOptions(flags, context);
  const pooling = poolingOptions(flags);
  const grammar = await grammarOptions(flags, terminal);
  if (flags.slotSavePath !== undefined) await terminal.checkFolder(flags.slotSavePath);
  const source = await templateOf(flags, terminal);
  const { model: _, ...rest } = flags;
  const given = { ...rest, restart: true };
  const chosen = await ChosenOptions.read(
    context.downloads,
    `${dataFolderOf(flags)}model-options.json`,
    (line) => context.log.warn(`Warning: ${line}\n`),
  );
  const presets = new Presets(flags.modelsPreset, context);
  await presets.read();
  await using gateway = await joinAsGateway(flags, context);
  const wanted = gateway ? noModels : await wantedModels(flags, context, interrupt.signal);
  const onDemand = gateway ? undefined : onDemandOf(flags, given, wanted, presets, context, chosen);
  await onDemand?.list(); // a folder that cannot be read is reported now
  const templates = source === undefined ? {} : { [idOfTemplate(wanted)]: source };
  const file = flags.mcpConfig;
  const tools =
    file === undefined ? undefined : await openServers({ file }, context, interrupt.signal);
  await using _tools = { [Symbol.asyncDispose]: async () => await tools?.close() };
  const models = await openServed(wanted, given, templates, context, interrupt.signal, chosen);
  await using _models = { [Symbol.asyncDispose]: () => closeServed(models) };
  checkRanks(flags, models);
  for (const model of Object.values(models)) await warnOfGrammar(model, grammar, context.log);
  for (const [id, { info }] of Object.entries(models)) {
    const warning = shiftWarning(flags, id, info);
    if (warning) context.log.warn(`Warning: ${warning}\n`);
  }
  const { isLocalHost, startServer } = await import("../../server/serve.ts"); // other commands start without it
  const library = catalogLibrary(
    ...([context.downloads, given, openedModels(wanted, templates)] as const),
    ...([onDemand, chosen] as const),
  );
  const hasPage = flags.web && flags.path === undefined && !hidesPage(flags);
  const assets = hasPage ? webAssets() : undefined;
  if (!gateway) await measureBefore(context);
  const options = {
    ...startOptions(flags, models, context),
    ...reach,
    sampling: { ...generateOptions(flags), ...grammar },
    ...access,
    ...pooling,
    ...served(wanted),
    ...(flags.web && !gateway && { library }),
    ...gateway?.batches(batchesOf(flags).batches),
    ...(onDemand && { onDemand }),
    ...(!gateway && { derivedStore: derivedStore(context) }),
    limits: {
      models: flags.modelsMax || Infinity,
      bytes: flags.modelsMemory,
      freeBytes: () => context.downloads.freeMemoryBytes(),
      autoload: flags.modelsAutoload !== false,
    },
    ...(tools && { tools }),
    ...(assets && { assets }),
  };
  const server = await startServer(options)
    .catch((error: unknown) => {
      if (!(anyPort && codeOf(error) === "EADDRINUSE")) throw error;
      terminal.err(`Port ${flags.port} is in use; using another one.\n`);
      return startServer({ ...options, port: 0 });
    })
    .catch((error: unknown) => cannotListen(error, flags));
  gateway?.serveFrom(server);
  const withdraw = await announce(server, library, context);
  using _hangup = presets.reloadOnHangup(server);
  for (const id of presets.atStart()) server.context.registry.start(id);
  context.log.warn(warnings(flags, access, isLocalHost(flags.host)));
  terminal.outliveReaders();
  if (flags.json) terminal.out(startedJson(server, Object.keys(models)));
  else {
    terminal.out(greeting(server, models, assets !== undefined, terminal, onDemand !== undefined));
  }
  if (gateway) terminal.err(gateway.greeting);
  if (hasPage && !assets) {
    terminal.err('The web app is not built. "npm run build:web" builds it.\n');
  }
  if (flags.open && assets) openInBrowser(server.pageUrl, server.token !== undefined);
  const { queue } = server.context;
  const say = noteTo(context);
  const tunes = wanted.models.flatMap(({ name }) => idleTune(name, flags, context, say));
  const chores = [...idleMeasurement({ limit: true }, context, say), ...tunes];
  const endChores = workWhileIdle(new IdleWork(chores), () => queue.running + queue.waiting > 0);
  await aborted(interrupt.signal);
  await endChores();
  terminal.err("\nStopping when the running requests are done. Press Ctrl-C again to stop now.\n");
  await server.stop();
  await withdraw();
}

/** The file of --models-preset. */
class Presets {
  readonly #path: string | undefined;
  readonly #context: CliContext;
  #now: PresetFile = parsePresets("{}", "none.json");

  constructor(path: string | undefined, context: CliContext) {
    this.#path = path;
    this.#context = context;
  }

  now(): PresetFile {
    return this.#now;
  }

  async read(): Promise<void> {
    if (this.#path !== undefined) this.#now = await readPresets(this.#path, this.#context);
  }

  /** Models to load when the server starts. */
  atStart(): string[] {
    const { models } = this.#now;
    return [...models].filter(([, one]) => one.isLoadedAtStart).map(([id]) => id);
  }

  /** SIGHUP reads the file again. If something is wrong with it, the settings stay as they are. */
  reloadOnHangup({ context: { models, events, registry, settings } }: RunningServer): Disposable {
    const { terminal } = this.#context;
    if (this.#path === undefined) return { [Symbol.dispose]: () => {} };
    const reload = async (): Promise<void> => {
      try {
        await this.read();
      } catch (error) {
        terminal.err(`The settings stay as they were: ${messageOf(error)}\n`);
        return;
      }
      for (const { id } of models.list()) {
        registry.keep(id, models.preset(id)?.keepMs ?? settings.keepMs);
      }
      events.emit({ model: "*", event: "models_reload" });
      terminal.err(`${this.#path} was read again.\n`);
    };
    return { [Symbol.dispose]: terminal.onHangup(() => void reload()) };
  }
}

/** The models that requests load by their names; undefined: only those of the command line are served. */
function onDemandOf(
  flags: ServeFlags,
  given: ModelFlags,
  { models }: WantedModels,
  presets: Presets,
  { downloads }: CliContext,
  chosen: ChosenOptions,
): LocatedModels | undefined {
  const { isOn, catalog } = onDemandKind(flags);
  if (!isOn) return undefined;
  const { modelsPreset: file } = flags;
  const sources = {
    folder: flags.modelsDir,
    catalog,
    first: new Map(models.map(({ id, location }) => [id, location])),
    presetFolder: file === undefined ? undefined : downloads.join(downloads.absolute(file), ".."),
    presets: () => presets.now(),
  };
  return onDemandModels(downloads, given, sources, chosen);
}

/** Models that are made from others last in the cache folder. */
function derivedStore({ downloads }: CliContext): NonNullable<StartOptions["derivedStore"]> {
  return {
    list: () => listMade(downloads),
    write: (made) => writeDerived(made, downloads),
    remove: (name) => removeDerived(name, downloads),
    findBlob: (digest) => findBlob(digest, downloads),
    writeBlob: (digest, bytes) => writeBlob(digest, bytes, downloads),
    pruneBlobs: (named) => pruneBlobs(named, downloads),
  };
}

/** Announces this server and its loaded files to `lantern ps` and `lantern rm`, until it ends. */
async function announce(
  { url, context: { models } }: RunningServer,
  library: ModelLibrary,
  { downloads }: CliContext,
): Promise<() => Promise<void>> {
  const loaded = async (): Promise<ServerRecord["models"]> =>
    await Promise.all(
      models.list().map(async ({ id }) => ({ id, path: (await library.locate(id)) ?? id })),
    );
  const since = new Date().toISOString();
  const announced = await announceServer(downloads, { url, since, models: await loaded() });
  // In the order of the changes: the last one must be written last.
  let last = Promise.resolve();
  const unwatch = models.watch(() => {
    last = last.then(async () => announced.update(await loaded()));
  });
  return async () => {
    unwatch();
    await last;
    await announced.withdraw();
  };
}

const wordsOf = (list: string): string[] => list.split(",").flatMap((word) => word.trim() || []);

async function templateOf(
  { chatTemplate, chatTemplateFile }: ServeFlags,
  terminal: CliContext["terminal"],
): Promise<string | undefined> {
  // A file's name in place of a template's.
  const isFile =
    chatTemplate !== undefined && /[/\\]|\.jinja/.test(chatTemplate) && !/[\n{]/.test(chatTemplate);
  if (chatTemplateFile === undefined) {
    return isFile ? await terminal.readText(chatTemplate) : chatTemplate;
  }
  if (chatTemplate !== undefined) {
    throw new UsageError(
      "flags: got both --chat-template and --chat-template-file, expected one of them. Drop one",
    );
  }
  return await terminal.readText(chatTemplateFile);
}

/** The model that --chat-template is for: the only one, or that of --chat-model. */
function idOfTemplate({ models, pages }: WantedModels): string {
  const id = models.length === 1 ? models[0]!.id : pages.chat;
  if (id !== undefined) return id;
  throw new UsageError(
    "flags: got --chat-template with several models, expected it with one. Name the model that it is for with --chat-model",
  );
}

function openedModels(
  { models }: WantedModels,
  templates: Readonly<Record<string, string>>,
): Parameters<typeof catalogLibrary>[2] {
  return Object.fromEntries(
    models.map(({ id, location }) => [
      id,
      { location, chatTemplate: Object.hasOwn(templates, id) ? templates[id] : undefined },
    ]),
  );
}

/** The files, further names and pages of the models. */
function served({
  models,
  pages,
}: WantedModels): Pick<StartOptions, "files" | "aliases" | "pages"> {
  return {
    files: Object.fromEntries(models.map(({ id, location }) => [id, lastPart(location)])),
    aliases: Object.fromEntries(models.map(({ id, aliases }) => [id, aliases])),
    pages,
  };
}

/** llama.cpp's reading of these flags: --reranking is --embeddings with --pooling rank. */
function poolingOptions({
  pooling,
  embeddings = false,
  reranking = false,
}: ServeFlags): Pick<StartOptions, "pooling" | "embeddingsOnly"> {
  if (reranking && pooling !== undefined && pooling !== "rank") {
    throw new UsageError(
      `flags: got both --reranking and --pooling ${pooling}, expected one of them: ranks are a way of pooling. Drop one`,
    );
  }
  const asked = reranking ? "rank" : pooling;
  return { ...(asked && { pooling: asked }), embeddingsOnly: embeddings || reranking };
}

/** --reranking is for models that can. */
function checkRanks({ reranking }: ServeFlags, models: Readonly<Record<string, Model>>): void {
  if (!reranking) return;
  for (const [id, { info }] of Object.entries(models)) {
    if (info.embedding?.labels) continue;
    throw new UsageError(
      `serve: --reranking: ${id} has no classifier that could score documents. Serve a reranker, such as bge-reranker-v2-m3, or use --embeddings`,
    );
  }
}

function startOptions(
  flags: ServeFlags,
  models: Record<string, Model>,
  { log, terminal }: CliContext,
): StartOptions {
  return {
    models,
    version: packageVersion(),
    parallel: flags.parallel,
    queue: flags.queue,
    strictModel: flags.strictModel ?? false,
    strictFields: flags.strictFields ?? false,
    slots: flags.slots,
    ...(flags.slotSavePath !== undefined && { slotSavePath: flags.slotSavePath }),
    ...(flags.keepAlive !== undefined && { keepMs: flags.keepAlive }),
    metrics: flags.metrics,
    verbose: flags.verbose ?? false,
    ...(flags.reasoning !== "auto" && { thinking: flags.reasoning === "on" }),
    reasoning: {
      format: flags.reasoningFormat,
      budget: flags.reasoningBudget,
      message: flags.reasoningBudgetMessage,
      effort: flags.reasoningEffort,
    },
    ...(flags.embdNormalize !== undefined && { normalize: flags.embdNormalize }),
    prefill: flags.prefillAssistant,
    templateVariables: {
      ...(flags.reasoningPreserve !== undefined && {
        preserve_thinking: flags.reasoningPreserve,
        clear_thinking: !flags.reasoningPreserve,
        truncate_history_thinking: !flags.reasoningPreserve,
        drop_thinking: !flags.reasoningPreserve,
      }),
      ...flags.chatTemplateKwargs,
    },
    ...(flags.tags !== undefined && { tags: wordsOf(flags.tags) }),
    graceMs: flags.grace * 1000,
    ...sessionsOf(flags),
    ...batchesOf(flags),
    readSystem: () => systemReading(terminal),
    ...(flags.cacheFolder !== undefined && { cacheFolder: flags.cacheFolder }),
    log: (line) => log.error(`lantern: ${line}\n`),
    ...(log.has("info") && { logRequest: (line, level) => log[level](`${line}\n`) }),
  };
}

function sessionsOf({
  sessions,
  restoreSessions,
}: ServeFlags): Pick<StartOptions, "sessions" | "sessionBackups"> {
  if (sessions === false) return {};
  const file = sessions || defaultDatabaseFile("sessions.db");
  return {
    sessions: (options) =>
      openNodeDatabase(file, {
        ...options,
        otherwise: "start this one with --sessions FILE, --no-sessions, or LANTERN_DATA=FOLDER",
      }),
    sessionBackups: { backups: nodeBackups(file), restore: restoreSessions },
  };
}

/** Beside the conversations, unless a flag says where; with --no-sessions, batches are not saved either. */
function batchesOf({ batches, sessions }: ServeFlags): Pick<StartOptions, "batches"> {
  if (batches === false || (batches === undefined && sessions === false)) return {};
  const otherwise = "start this one with --batches FILE, --no-batches, or LANTERN_DATA=FOLDER";
  return { batches: batchPlace(batches ?? `${dataFolderOf({ sessions })}batches.db`, otherwise) };
}

/** The folder of the conversations, with a slash at its end. */
function dataFolderOf({ sessions }: { sessions?: string | false | undefined }): string {
  const beside = sessions || defaultDatabaseFile("sessions.db");
  return beside.slice(0, Math.max(beside.lastIndexOf("/"), beside.lastIndexOf("\\")) + 1);
}

/** The system's memory and processor use, for the server's history. */
function systemReading(terminal: CliContext["terminal"]): SystemReading {
  const { cores, memoryBytes, freeBytes } = terminal.machine();
  const { atMs, busySeconds, ownSeconds, residentBytes = 0 } = terminal.load();
  const memory = { memoryBytes, availableBytes: freeBytes, residentBytes };
  return { atMs, cores, ...memory, busySeconds, ownSeconds };
}

function warnings({ host }: ServeFlags, access: AccessOptions, isLocal: boolean): string {
  const reachable =
    isLocal || access.apiKeys?.length
      ? ""
      : `Warning: --host ${host} makes the server reachable from other machines, and there is no API key: anyone who can reach it can use the model. Set a key with --api-key-file PATH or LANTERN_API_KEY.\n`;
  const noToken =
    access.token === false
      ? "Warning: with --no-token, every program and every user on this machine can manage the models and read the conversations.\n"
      : "";
  return reachable + noToken;
}

/** The JSON for programs that start a server. */
function startedJson({ url, pageUrl, token }: RunningServer, models: readonly string[]): string {
  const [model] = models;
  return `${JSON.stringify({ url, pageUrl, token: token ?? null, model, models })}\n`;
}

function greeting(
  { url, pageUrl, token }: RunningServer,
  models: Readonly<Record<string, Model>>,
  hasPage: boolean,
  terminal: CliContext["terminal"],
  hasMore: boolean,
): string {
  const ids = Object.keys(models);
  const writing = ids.filter((id) => models[id]!.info.generates);
  const silent = writing.filter((id) => !models[id]!.info.hasChatTemplate);
  const chat = silent
    .map(
      (id) =>
        `${id} has no chat template, so it continues the text of the messages.${ids.length === 1 ? " Choose a template with --chat-template NAME." : ""}\n`,
    )
    .join("");
  const encoders = ids
    .filter((id) => !writing.includes(id))
    .map((id) => {
      const what = models[id]!.info.embedding?.labels
        ? "ranks (/v1/rerank)"
        : "embeddings (/v1/embeddings)";
      return `${id} makes ${what} and writes no text.\n`;
    })
    .join("");
  const run =
    terminal.env("npm_lifecycle_event") === "start" ? "npm run lantern -- run" : "lantern run";
  if (url.startsWith("unix:")) {
    const file = url.slice("unix:".length);
    return `${ids.join(", ") || "Models"} at ${url}\n  curl --unix-socket ${file} http://localhost/v1/models\nCtrl-C stops it.\n`;
  }
  const page = hasPage ? `\n  Lantern is open at  ${pageUrl}\n\n` : "";
  const admin =
    token !== undefined && !hasPage ? `  admin       Authorization: Bearer ${token}\n` : "";
  const first =
    ids.length === 0
      ? hasMore
        ? "Models are"
        : "The cluster is"
      : `${ids.join(", ")} ${ids.length === 1 ? "is" : "are"}`;
  const more = hasMore
    ? "Other models are loaded when a request names them (GET /v1/models).\n"
    : "";
  return `${page}${first} served at ${url}
  OpenAI      ${url}/v1
  Anthropic   ${url}
  Ollama      ${url}
  metrics     ${url}/metrics
${admin}${more}${chat}${encoders}Ctrl-C stops it.
${hasPage ? `Without a browser: ${run} -p "Once upon a time"\n` : ""}`;
}

function cannotListen(error: unknown, { host, port }: ServeFlags): never {
  const code = codeOf(error);
  const socket = code === undefined || error instanceof UsageError ? undefined : socketFileOf(host);
  if (socket !== undefined)
    throw new UsageError(`serve: cannot listen on ${host}: ${messageOf(error)}`);
  const reasons: Readonly<Record<string, string>> = {
    EADDRINUSE: `port ${port} is in use by another program, perhaps another Lantern server. Use --port 0 for a free port`,
    EACCES: `this user may not use port ${port}. Use a port of 1024 or above`,
    EADDRNOTAVAIL: `${host} is not an address of this machine. Use 127.0.0.1 or 0.0.0.0`,
    ENOTFOUND: `there is no host ${host}. Check the name`,
  };
  const reason = typeof code === "string" ? reasons[code] : undefined;
  if (reason === undefined) throw error;
  throw new UsageError(`serve: cannot listen on ${host}:${port}: ${reason}`);
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => resolve(), { once: true });
  await promise;
}

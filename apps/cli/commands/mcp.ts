// lantern mcp: Lantern's own tools (generate, embed, tokenize, limits) for other programs, as an MCP server over stdio or HTTP. Over stdio,
// stdout has only the protocol. The model is loaded at the first call that needs it.

import { defaultModel } from "../../../src/catalog/catalog.ts";
import { type LimitsReport, type Model, open, UsageError } from "../../../src/index.ts";
import { packageVersion } from "../../../src/platform/node-cli.ts";
import { ownLines } from "../../../src/platform/node-lines.ts";
import type { OwnParts, OwnRun } from "../../mcp/own/tools.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { templateHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import { addModelFlags, type ModelFlags, openOptions } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { limitsText } from "../limits-text.ts";
import { locateModel, sayWarnings } from "../load-model.ts";
import { palette } from "../text.ts";

interface McpFlags extends Omit<ModelFlags, "model"> {
  model?: string;
  http?: number;
  json?: boolean;
}

export const mcpCommand: CommandBody = {
  examples: [
    "lantern mcp -m tinyllama-chat",
    "lantern mcp -m tinyllama-chat --http 8090",
    'in a client\'s settings: {"mcpServers": {"lantern": {"command": "lantern", "args": ["mcp", "-m", "tinyllama-chat"]}}}',
  ],
  define(command, context) {
    addModelFlags(command, defaultModel, { warmup: true, usesGpu: true })
      .option("--template <name>", `${templateHelp} (default: the model's own)`)
      .option(
        "--http <port>",
        "listen on this port of 127.0.0.1, at /mcp, instead of speaking through standard input and output; 0: any free port",
        numberFlag({ integer: true, min: 0, max: 65535 }),
      )
      .option("--json", "with --http: print one JSON object when the server is ready: url")
      .action((flags: McpFlags) => serveTools(flags, context));
  },
};

async function serveTools(flags: McpFlags, context: CliContext): Promise<void> {
  if (flags.json && flags.http === undefined) {
    throw new UsageError(
      "mcp: got --json without --http, expected both: without --http, stdout has the protocol",
    );
  }
  using interrupt = interruptible(context.terminal);
  const held = new HeldModel(flags, context);
  try {
    if (flags.http === undefined) await overStdio(held, context, interrupt.signal);
    else await overHttp(held, flags.http, flags.json ?? false, context, interrupt.signal);
  } finally {
    await held.dispose();
  }
}

async function overStdio(held: HeldModel, context: CliContext, signal: AbortSignal): Promise<void> {
  const { ownServer } = await import("../../mcp/own/server.ts");
  const { LineTransport } = await import("../../mcp/line-transport.ts");
  const { lineLimits } = await import("../../mcp/limits.ts");
  const server = await ownServer(held.parts, (line) => context.log.error(`lantern: ${line}\n`));
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  server.onclose = resolve;
  await server.connect(new LineTransport(ownLines(lineLimits)));
  signal.addEventListener("abort", () => resolve(), { once: true });
  await closed;
  await server.close();
}

async function overHttp(
  held: HeldModel,
  port: number,
  isJson: boolean,
  context: CliContext,
  signal: AbortSignal,
): Promise<void> {
  const { ownServer } = await import("../../mcp/own/server.ts");
  const { HttpSessions } = await import("../../mcp/own/http.ts");
  const { listenLocally } = await import("../../server/serve.ts");
  const log = (line: string): void => context.log.error(`lantern: ${line}\n`);
  await ownServer(held.parts, log); // a missing package is reported now
  const sessions = new HttpSessions(() => ownServer(held.parts, log));
  const server = await listenLocally((request) => sessions.handle(request), { port, log });
  const url = `${server.url}/mcp`;
  if (isJson) context.terminal.out(`${JSON.stringify({ url })}\n`);
  else context.terminal.err(`MCP server at ${url}. Ctrl-C stops it.\n`);
  await new Promise<void>((stop) => {
    if (signal.aborted) stop();
    signal.addEventListener("abort", () => stop(), { once: true });
  });
  await sessions.close();
  await server.stop();
}

/** The model, which the first call opens for all calls. */
class HeldModel {
  readonly parts: OwnParts;
  readonly #flags: McpFlags;
  readonly #context: CliContext;
  #opening: Promise<Model> | undefined;
  /** Waiting calls get the progress of loading. */
  readonly #waiting = new Set<OwnRun>();

  constructor(flags: McpFlags, context: CliContext) {
    this.#flags = flags;
    this.#context = context;
    const plain = palette(false);
    this.parts = {
      modelName: flags.model ?? defaultModel,
      version: packageVersion(),
      model: (run) => this.#model(run),
      limitsText: (report: LimitsReport) => limitsText(report, plain),
    };
  }

  async #model(run: OwnRun): Promise<Model> {
    this.#waiting.add(run);
    this.#opening ??= this.#open();
    const opening = this.#opening;
    // The next call tries again.
    opening.catch(() => {
      if (this.#opening === opening) this.#opening = undefined;
    });
    try {
      return await opening;
    } finally {
      this.#waiting.delete(run);
    }
  }

  async #open(): Promise<Model> {
    const { modelName } = this.parts;
    const path = await locateModel(modelName, this.#context);
    this.#context.terminal.err(`Loading ${modelName}\n`);
    const model = await open(path, {
      ...openOptions({ ...this.#flags, model: modelName }),
      restart: true,
      // Progress of one step: generating counts tokens from 1 on.
      onProgress: ({ loadedBytes, totalBytes }) => {
        for (const run of this.#waiting)
          run.progress(loadedBytes / totalBytes, undefined, "loading");
      },
      onWarning: (warning) => sayWarnings({ warnings: [warning] }, this.#context),
    });
    sayWarnings(model.info, this.#context);
    return model;
  }

  async dispose(): Promise<void> {
    const model = await this.#opening?.catch(() => undefined);
    await model?.dispose();
  }
}

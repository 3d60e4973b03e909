// Lantern's own tools for other programs, one entry each: the tools of `lantern mcp`. Arguments are checked by their schemas before
// a tool runs; results are text, and the same as structured content.

import * as z from "zod";
import {
  AbortedError,
  type ChatGeneration,
  type LimitsReport,
  limits,
  limitsNames,
  type Model,
  UsageError,
} from "../../../src/index.ts";
import { samplingTable } from "../../../src/options/sampling.ts";

/** The parts that the command gives to its tools. */
export interface OwnParts {
  /** The model's name, as the user gave it. */
  readonly modelName: string;
  /** Opens the model at the first call; later calls get the same one. */
  model(run: OwnRun): Promise<Model>;
  /** A report as tables. */
  limitsText(report: LimitsReport): string;
  readonly version: string;
}

/** One running call. */
export interface OwnRun {
  readonly signal: AbortSignal;
  /** Sends progress to the client. */
  progress(done: number, total: number | undefined, message: string): void;
}

export interface OwnResult {
  readonly text: string;
  readonly structured: Readonly<Record<string, unknown>>;
}

interface OwnTool<Args extends z.ZodType = z.ZodType> {
  readonly description: string;
  readonly input: Args;
  run(args: z.infer<Args>, run: OwnRun, parts: OwnParts): Promise<OwnResult>;
}

const temperatureRow = samplingTable.temperature;

const tool = <Args extends z.ZodType>(given: OwnTool<Args>): OwnTool => given as unknown as OwnTool;

const message = z.strictObject({
  role: z.enum(["system", "user", "assistant"]),
  content: z.string(),
});

const generate = tool({
  description:
    "Generates text with a language model on this machine: an answer to chat messages, or the continuation of a prompt.",
  input: z.strictObject({
    messages: z
      .array(message)
      .min(1)
      .max(1024)
      .optional()
      .describe("A conversation that ends with a user's message; give these or a prompt"),
    prompt: z.string().optional().describe("A text that the model continues as it is"),
    parse_special: z
      .boolean()
      .default(false)
      .describe("Read names of special tokens in the prompt as those"),
    max_tokens: z.int().min(1).max(65_536).default(512).describe("The most tokens to generate"),
    temperature: z
      .number()
      .min(0)
      .max(temperatureRow.requests.max)
      .optional()
      .describe(temperatureRow.note),
    top_p: z.number().min(0).max(1).optional(),
    seed: z.int().min(0).max(0xffff_ffff).optional(),
    stop: z.array(z.string().min(1)).max(16).optional().describe("Texts that end the generation"),
    schema: z
      .record(z.string(), z.unknown())
      .optional()
      .describe("A JSON Schema: the text is a JSON value of it"),
  }),
  async run(args, run, parts) {
    const { messages, prompt, max_tokens: maxTokens, temperature, top_p: topP, seed, stop } = args;
    if ((messages === undefined) === (prompt === undefined)) {
      throw new UsageError(
        "generate: got both or none of messages and prompt, expected one of them",
      );
    }
    const model = await parts.model(run);
    if (!model.info.generates) {
      throw new UsageError(
        `generate: ${parts.modelName} makes embeddings and cannot generate text. Start "lantern mcp" with another model`,
      );
    }
    const options = {
      maxTokens,
      signal: run.signal,
      ...(temperature !== undefined && { temperature }),
      ...(topP !== undefined && { topP }),
      ...(seed !== undefined && { seed }),
      ...(stop !== undefined && { stop }),
      ...(args.schema !== undefined && { schema: args.schema }),
    };
    const generation =
      messages === undefined
        ? model.generate(prompt!, { ...options, parseSpecial: args.parse_special })
        : answerTo(model, messages, options);
    let tokens = 0;
    for await (const event of generation.tokens()) {
      if (event.id >= 0) run.progress(++tokens, maxTokens, `${tokens} tokens`);
    }
    const { text, stopReason, timings } = await generation.result;
    if (stopReason === "aborted") throw new AbortedError("the generation");
    const { promptTokens: prompt_tokens, generatedTokens: generated_tokens } = timings;
    return { text, structured: { text, stop_reason: stopReason, prompt_tokens, generated_tokens } };
  },
});

function answerTo(
  model: Model,
  messages: readonly z.infer<typeof message>[],
  options: Parameters<Model["generate"]>[1] & object,
): ChatGeneration {
  const last = messages.at(-1)!;
  if (last.role !== "user") {
    throw new UsageError(`generate: the last message is the ${last.role}'s, expected the user's`);
  }
  return model.chat({ messages: messages.slice(0, -1) }).send(last.content, options);
}

const embed = tool({
  description:
    "Turns texts into vectors with a model on this machine: alike texts have alike vectors.",
  input: z.strictObject({
    texts: z.array(z.string().min(1)).min(1).max(256),
    as: z
      .enum(["query", "passage"])
      .optional()
      .describe("Put before each text what the model's card asks for"),
  }),
  async run({ texts, as }, run, parts) {
    const model = await parts.model(run);
    const embeddings = await model.embed(texts, {
      signal: run.signal,
      ...(as && { as }),
      onProgress: ({ doneTexts, totalTexts }) => run.progress(doneTexts, totalTexts, "texts"),
    });
    const vectors = embeddings.map(({ vector }) => [...vector]);
    const structured = {
      embeddings: vectors,
      dimensions: vectors[0]!.length,
      tokens: embeddings.reduce((sum, { tokens }) => sum + tokens, 0),
    };
    return { text: JSON.stringify(structured), structured };
  },
});

const tokenize = tool({
  description: "The tokens of a text, as the model on this machine reads it.",
  input: z.strictObject({
    text: z.string(),
    add_bos: z.boolean().default(true).describe("Begin with the token that begins texts, if any"),
    parse_special: z.boolean().default(false).describe("Read names of special tokens as those"),
  }),
  async run({ text, add_bos: addBos, parse_special: parseSpecial }, run, parts) {
    const model = await parts.model(run);
    const { signal } = run;
    const tokens = await model.tokenize(text, { addBos, parseSpecial, signal });
    const structured = { count: tokens.length, tokens };
    return { text: JSON.stringify(structured), structured };
  },
});

const showLimits = tool({
  description:
    "The fastest that a device can run a language model, from its bandwidth and arithmetic, and the memory that it needs.",
  input: z.strictObject({
    model: z
      .string()
      .max(200)
      .optional()
      .describe("A known model, such as llama-3-8b; default: the served one"),
    device: z
      .string()
      .max(200)
      .optional()
      .describe(
        "A known device, such as rtx4090 or h100-sxm; default: this machine, which is measured first",
      ),
    weights: z.string().max(20).optional().describe("Bits per weight, or a type such as q4_0"),
    context: z
      .int()
      .min(1)
      .max(1 << 24)
      .optional(),
  }),
  async run({ model, device, weights, context }, run, parts) {
    const names = await limitsNames();
    // Only names: a client may not request files of this machine.
    if (model !== undefined && !names.models.some(({ id }) => id === model)) {
      throw new UsageError(
        `limits: there is no model "${model}". Known: ${names.models.map(({ id }) => id).join(", ")}`,
      );
    }
    run.progress(0, 1, "computing limits");
    const report = await limits(model ?? parts.modelName, { device, weights, context });
    const { model: of, device: on } = report;
    const structured = {
      model: of.name,
      device: on.id,
      report: JSON.parse(JSON.stringify(report)),
    };
    return { text: parts.limitsText(report), structured };
  },
});

/** By the names that clients use. */
export const ownTools: ReadonlyMap<string, OwnTool> = new Map([
  ["generate", generate],
  ["embed", embed],
  ["tokenize", tokenize],
  ["limits", showLimits],
]);

// Ollama's API: /api/chat and /api/generate as lines of JSON, with tools and thinking. models.ts has the routes about models.

import * as z from "zod";
import type {
  AnswerReaderOptions,
  ChatMessage,
  GenerateOptions,
  GenerationResult,
  StopReason,
  TokenEvent,
} from "../../../../src/index.ts";
import { checkFields, emptyList, type FieldRules, oneOf, readFields } from "../../body.ts";
import { type AnswerBlock, argumentsOf, BlockEvents, ChatAnswer } from "../../chat-answer.ts";
import { promptOptions } from "../../chat-fields.ts";
import { earlierCalls, noToolUse, toolShape, toolUse } from "../../chat-tools.ts";
import { type ChatTurn, chatTurn } from "../../chat-turn.ts";
import { type Completion, collect, startCompletion } from "../../completion.ts";
import type { ServedModel } from "../../context.ts";
import { invalidRequest, ollamaErrors, unsupportedField } from "../../errors.ts";
import {
  type AskedGrammar,
  noteHeaders,
  ollamaFormatInput,
  ollamaGrammar,
  usableGrammar,
} from "../../grammar-fields.ts";
import type { IgnoredFields } from "../../ignored-fields.ts";
import { gapTokens } from "../../infill.ts";
import { objectList } from "../../inputs.ts";
import { ollamaOptions } from "../../ollama-options.ts";
import { type ChatPromptOptions, textTokens } from "../../prompt.ts";
import { reasoningOptions } from "../../reasoning-fields.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { type SamplingFields, samplingOf, samplingShape } from "../../sampling-fields.ts";
import { lineStream } from "../../sse.ts";
import { tiersOf } from "../../timings.ts";
import { listOfLogprobs } from "../openai/logprobs.ts";
import { embed, embedOld } from "./embed.ts";
import { fittingTurn } from "./fitting.ts";
import { ollamaManageRoutes } from "./manage.ts";
import { keepAliveField, ollamaModelRoutes, servedAs, unloadNamed } from "./models.ts";

const MOST_CONTEXT = 16_777_216;

const common = {
  ...samplingShape, // clients of other servers put them here; `options` takes precedence
  model: z.string(),
  stream: z.boolean().optional(),
  options: z.record(z.string(), z.unknown()).optional(),
  keep_alive: keepAliveField.optional(),
  /** Whether the model thinks first, and for some models how hard. */
  think: z.union([z.boolean(), z.enum(["low", "medium", "high"])]).optional(),
  format: ollamaFormatInput.optional(),
  logprobs: z.boolean().optional(),
  top_logprobs: z.int().min(0).max(20).optional(),
};

const chatFields = z.object({
  ...common,
  messages: objectList.optional(),
  /** false: a conversation that does not fit is refused. */
  truncate: z.boolean().optional(),
  tools: toolShape.tools,
  tool_choice: toolShape.tool_choice,
});

const messageFields = z.object({
  role: z.enum(["system", "user", "assistant", "tool"]),
  content: z.string().optional(),
  thinking: z.string().optional(),
  tool_calls: z.unknown().optional(),
  tool_name: z.string().optional(),
  tool_call_id: z.string().optional(),
});

const messageRules: FieldRules = {
  accepted: [],
  refused: {
    images: { why: "this server reads text only", fine: emptyList },
  },
};

const generateFields = z.object({
  ...common,
  prompt: z.string().optional(),
  system: z.string().optional(),
  raw: z.boolean().optional(),
  suffix: z.string().optional(),
  /** The tokens of an earlier answer and its prompt, which this one follows. */
  context: z.array(z.int().min(0)).max(MOST_CONTEXT).optional(),
});

const rules: FieldRules = {
  // Pictures are made nowhere here; an answer that reaches the end of the context ends there, unless the server shifts contexts.
  accepted: ["width", "height", "steps", "shift"],
  refused: {
    tools: { why: "only /api/chat calls tools", fine: emptyList },
    images: { why: "this server reads text only", fine: emptyList },
    template: {
      why: "the template is the model's; --chat-template chooses another",
      fine: oneOf(""),
    },
    context: { why: "only /api/generate goes on from one", fine: emptyList },
  },
  adjust(body) {
    // OpenAI's name, which clients of both send. `options` takes precedence.
    const { max_output_tokens: limit, options } = body;
    delete body.max_output_tokens;
    if (!Number.isInteger(limit)) return;
    if (options === undefined || options === null) body.options = { num_predict: limit };
    else if (typeof options === "object") body.options = { num_predict: limit, ...options };
  },
};

/** A single prompt has no older part that could be left out: one that does not fit is refused with the numbers. */
const generateRules: FieldRules = { ...rules, accepted: [...rules.accepted, "truncate"] };

async function chat(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, chatFields, rules);
  const messages = fields.messages ?? [];
  if (messages.length === 0) return await emptied(call, fields, { message: assistant("") });
  const served = await servedAs(call, fields.model, fields.keep_alive);
  if (messages.length > server.settings.maxMessages) {
    throw invalidRequest(
      `"messages": got ${messages.length}, expected at most ${server.settings.maxMessages}`,
    );
  }
  const asked = readOptions(call, served, fields);
  const make = (said: readonly ChatMessage[]): Promise<ChatTurn> =>
    chatTurn(served, {
      messages: said,
      use: toolUse(fields),
      template: templateOf(call, fields.think),
      reasoning: reasoningOptions({}, server.settings),
      grammar: ollamaGrammar(fields.format),
      param: "messages",
    });
  const said = messages.map((message, at) => toMessage(message, at, call.ignored));
  const turn =
    fields.truncate === false
      ? await make(said)
      : await fittingTurn(served, said, asked.maxTokens, make);
  call.headers = turn.headers;
  const options = { ...asked, ...turn.options };
  const completion = await startCompletion(call, { served, tokens: turn.tokens, options });
  return await reply(call, served, completion, {
    stream: fields.stream,
    plan: turn.plan,
    write: (piece) => ({ message: assistant(piece.content, piece) }),
  });
}

function toMessage(
  given: Readonly<Record<string, unknown>>,
  at: number,
  ignored: IgnoredFields,
): ChatMessage {
  const path = `messages[${at}]`;
  const read = checkFields(given, messageFields, messageRules, `${path}.`, ignored);
  const { role, content = "", thinking, tool_calls, tool_name, tool_call_id } = read;
  if (content === "" && role !== "assistant" && given.content === undefined) {
    throw invalidRequest(`"${path}.content": it is missing, expected a string`, `${path}.content`);
  }
  const more = {
    reasoning_content: thinking || undefined,
    tool_calls:
      tool_calls === undefined ? undefined : earlierCalls(tool_calls, `${path}.tool_calls`),
    name: tool_name || undefined,
    tool_call_id,
  };
  const set = Object.entries(more).filter(([, value]) => value !== undefined);
  return { role, content, ...Object.fromEntries(set) } as ChatMessage;
}

/** Template options besides the messages. */
function templateOf({ server }: Call, think: boolean | string | undefined): ChatPromptOptions {
  const asked = {
    messages: [],
    ...(typeof think === "string" && { reasoning_effort: think, enable_thinking: true }),
    ...(typeof think === "boolean" && { enable_thinking: think }),
  };
  return promptOptions(asked, server.settings);
}

async function generate(call: Call): Promise<Response> {
  const fields = await readFields(call, generateFields, generateRules);
  const { prompt, system, raw } = fields;
  if (raw && system) {
    throw unsupportedField("system", "together with raw, which is the whole prompt as it stands");
  }
  if (prompt === undefined || prompt === "") return await emptied(call, fields, { response: "" });
  const served = await servedAs(call, fields.model, fields.keep_alive);
  const messages: ChatMessage[] = [
    ...(system ? [{ role: "system" as const, content: system }] : []),
    { role: "user", content: prompt },
  ];
  const options = readOptions(call, served, fields);
  const gap = { prefix: prompt, suffix: fields.suffix ?? "" };
  const plain = fields.suffix
    ? await gapTokens(served, gap, options.maxTokens ?? 0, "suffix")
    : raw
      ? await textTokens(served, prompt)
      : undefined;
  const grammar = ollamaGrammar(fields.format);
  const turn: ChatTurn = plain
    ? await plainTurn(served, plain, grammar)
    : await chatTurn(served, {
        messages,
        use: noToolUse,
        template: templateOf(call, fields.think),
        reasoning: reasoningOptions({}, call.server.settings),
        grammar,
        param: "prompt",
      });
  const { plan } = turn;
  const tokens = await following(served, fields.context, turn.tokens);
  call.headers = turn.headers;
  const completion = await startCompletion(call, {
    served,
    tokens,
    options: { ...options, ...turn.options },
  });
  return await reply(call, served, completion, {
    stream: fields.stream,
    plan,
    write: ({ content, thinking }) => ({
      response: content,
      ...(thinking !== "" && { thinking }),
    }),
    ...(!raw && { end: ({ tokenIds }) => ({ context: [...tokens, ...tokenIds] }) }),
  });
}

/** A prompt that follows an earlier one and its answer: BOS stands at the beginning only. */
async function following(
  { model }: ServedModel,
  context: readonly number[] = [],
  tokens: readonly number[],
): Promise<readonly number[]> {
  if (context.length === 0) return tokens;
  const [bos] = await model.tokenize("");
  return [...context, ...(tokens[0] === bos ? tokens.slice(1) : tokens)];
}

/** The fields of an answer's line. */
interface Piece {
  readonly content: string;
  readonly thinking: string;
  readonly calls: readonly AnswerBlock[];
}

const emptyPiece: Piece = { content: "", thinking: "", calls: [] };

/** Ollama gives arguments as objects: a call that the end of the answer cut off has none, and is left out. */
function assistant(content: string, { thinking, calls }: Piece = emptyPiece): object {
  const tool_calls = calls.flatMap((block, index) => {
    const given = argumentsOf(block);
    return given ? [{ id: block.id, function: { index, name: block.name, arguments: given } }] : [];
  });
  return {
    role: "assistant",
    content,
    ...(thinking !== "" && { thinking }),
    ...(tool_calls.length > 0 && { tool_calls }),
  };
}

/** A request without a prompt: Ollama's way to load a model, or to unload it with keep_alive 0. */
async function emptied(
  call: Call,
  { model, keep_alive }: { model: string; keep_alive?: number | undefined },
  empty: object,
): Promise<Response> {
  const { server } = call;
  const isUnload = keep_alive === 0;
  const id = isUnload
    ? await unloadNamed(call, model)
    : (await servedAs(call, model, keep_alive)).id;
  const created_at = new Date(server.time()).toISOString();
  const done_reason = isUnload ? "unload" : "load";
  return json({ model: id, created_at, ...empty, done_reason, done: true });
}

function readOptions(
  { server, ignored }: Call,
  served: ServedModel,
  given: SamplingFields & {
    options?: Record<string, unknown> | undefined;
    logprobs?: boolean | undefined;
    top_logprobs?: number | undefined;
  },
): GenerateOptions {
  const { contextSize } = served.model.info;
  const { options, logprobs, top_logprobs = 0, ...fields } = given;
  const read = ollamaOptions(
    options ?? {},
    "options.",
    samplingOf(server, served),
    ignored,
    fields,
  );
  if (read.contextSize !== undefined && read.contextSize > contextSize) {
    // A conversation that fits gets the same answer; of a longer one, the oldest messages are left out.
    ignored.see("options.num_ctx");
    if (ignored.isStrict) {
      throw unsupportedField(
        "options.num_ctx",
        `got ${read.contextSize}, but the context has ${contextSize} tokens. Its size is set with -c when the server starts`,
      );
    }
  }
  return logprobs ? { ...read.options, logprobs: top_logprobs } : read.options;
}

interface Reply {
  readonly stream: boolean | undefined;
  readonly plan: AnswerReaderOptions | undefined;
  readonly write: (piece: Piece) => object;
  /** More fields of the last line. */
  readonly end?: (result: GenerationResult) => object;
}

async function reply(
  { server }: Call,
  served: ServedModel,
  completion: Completion,
  { stream, plan, write, end }: Reply,
): Promise<Response> {
  const started = server.now();
  const head = (): object => ({
    model: served.id,
    created_at: new Date(server.time()).toISOString(),
  });
  const last = (result: GenerationResult, piece: Piece): object => ({
    ...head(),
    ...write(piece),
    done: true,
    ...endOf(result, server.now() - started),
    ...end?.(result),
  });
  if (stream === false) {
    const { events, result } = await collect(completion);
    const answer = ChatAnswer.of(plan, events);
    const { calls } = answer;
    const piece = { content: answer.text("content"), thinking: answer.text("reasoning"), calls };
    return json({ ...last(result, piece), ...logprobsOf(events) });
  }
  async function* lines(): AsyncGenerator<object> {
    const blocks = new BlockEvents(new ChatAnswer(plan));
    const line = (piece: Partial<Piece>): object => ({
      ...head(),
      ...write({ ...emptyPiece, ...piece }),
      done: false,
    });
    function* linesOf(events: ReturnType<BlockEvents["push"]>): Generator<object> {
      for (const { type, block, text } of events) {
        // A call is one line, once it is whole.
        if (type === "close" && block.kind === "call") yield line({ calls: [block] });
        else if (type !== "delta" || text === "") continue;
        else if (block.kind === "content") yield line({ content: text });
        else if (block.kind === "reasoning") yield line({ thinking: text });
      }
    }
    let scored: TokenEvent[] = []; // those of which no line has told yet
    for await (const token of completion.tokens()) {
      scored.push(token);
      for (const written of linesOf(blocks.push(token))) {
        yield { ...written, ...logprobsOf(scored) };
        scored = [];
      }
    }
    const result = await completion.result;
    yield* linesOf(blocks.end());
    yield { ...last(result, emptyPiece), ...logprobsOf(scored) };
  }
  return lineStream(lines(), { server, error: (facts) => [ollamaErrors.body(facts)] });
}

/** The log-probabilities of these tokens, if they have any. */
function logprobsOf(events: readonly TokenEvent[]): object {
  const logprobs = listOfLogprobs(events);
  return logprobs.length > 0 ? { logprobs } : {};
}

const doneReasons: Readonly<Record<StopReason, string>> = {
  end: "stop",
  stop: "stop",
  length: "length",
  context: "length",
  aborted: "stop",
};

/** Ollama's durations are in nanoseconds. */
function endOf({ timings, stopReason }: GenerationResult, totalMs: number): object {
  const nanoseconds = (ms: number): number => Math.round(ms * 1e6);
  const { kv, ram, disk } = tiersOf(timings);
  return {
    done_reason: doneReasons[stopReason],
    total_duration: nanoseconds(Math.max(totalMs, timings.promptMs + timings.generatedMs)),
    load_duration: 0,
    prompt_eval_count: timings.promptTokens,
    prompt_cached_kv_count: kv, // ours, as the next two: Ollama does not report cached tokens
    prompt_cached_ram_count: ram,
    prompt_cached_disk_count: disk,
    prompt_eval_duration: nanoseconds(timings.promptMs),
    eval_count: timings.generatedTokens,
    eval_duration: nanoseconds(timings.generatedMs),
  };
}

export const ollamaRoutes: RouteFamily = {
  name: "ollama",
  errors: ollamaErrors,
  routes: [
    { method: "POST", path: "/api/chat", access: "use", handle: chat },
    { method: "POST", path: "/api/generate", access: "use", handle: generate },
    { method: "POST", path: "/api/embed", access: "use", handle: embed },
    { method: "POST", path: "/api/embeddings", access: "use", handle: embedOld },
    ...ollamaModelRoutes,
    ...ollamaManageRoutes,
    {
      method: "GET",
      path: "/api/version",
      access: "use",
      handle: ({ server }) => json({ version: server.settings.version }),
    },
  ],
};

/** A text that no template was applied to. */
async function plainTurn(
  served: ServedModel,
  tokens: number[],
  asked: AskedGrammar | undefined,
): Promise<ChatTurn> {
  const grammar = await usableGrammar(served, asked);
  return { tokens, plan: undefined, options: grammar.options, headers: noteHeaders(grammar) };
}

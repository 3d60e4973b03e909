// Simulated users of a server: each sends one request at a time to POST /v1/completions, the common route of
// OpenAI-compatible servers, and counts the returned tokens. Measures the speed for N users who send at the same
// moment. Prompts are random words, different for every request, so that no server can reuse a cached prompt.

import { AbortedError, messageOf, SourceError } from "../../../src/base/errors.ts";
import { median, quantile } from "../../../src/base/measure.ts";

/** A server, and the model to request. */
export interface ServerUnderTest {
  /** Without a slash at the end. */
  readonly url: string;
  /** The name of the model there. */
  readonly model: string;
  readonly apiKey?: string | undefined;
  readonly fetch: typeof fetch;
  now(): number;
  readonly signal: AbortSignal;
}

/** The words of a prompt that has about the wanted number of tokens. */
export interface PromptSize {
  readonly words: number;
}

export interface Answer {
  readonly firstMs: number;
  /** From the first token to the last. */
  readonly restMs: number;
  readonly tokens: number;
  /** undefined: the server does not count them. */
  readonly promptTokens: number | undefined;
}

/** The speeds that a number of users measured. */
export interface UsersResult {
  readonly users: number;
  readonly firstP50Ms: number;
  readonly firstP99Ms: number;
  readonly slowest: number;
  readonly median: number;
  /** Tokens of answers. */
  readonly tokensPerSecond: number;
  /** Tokens of prompts and answers; undefined: the server does not count those of prompts. */
  readonly allTokensPerSecond: number | undefined;
  /** Means of the server's counts. */
  readonly promptTokens: number | undefined;
  readonly answerTokens: number;
}

/** Short and common: most vocabularies have a token for each. */
const words =
  "the and was for that with his they she had not you from her one all were out said there time will some into them can only other new my over such then first any work may these give most find here thing many well long down day get made part little house world still between own must home big air line set end".split(
    " ",
  );

/** A source of prompts: different every time, the same in every run. */
export function promptSource(): (size: PromptSize) => string {
  let state = 0x2f6e2b1;
  const next = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * words.length);
  };
  return ({ words: count }) => Array.from({ length: count }, () => words[next()]).join(" ");
}

/** The number of words that have about this number of tokens, found with two requests. */
export async function promptSize(
  server: ServerUnderTest,
  tokens: number,
  prompts: (size: PromptSize) => string,
): Promise<PromptSize> {
  const few = Math.max(1, Math.min(8, Math.floor(tokens / 8)));
  const counted = async (count: number): Promise<number | undefined> =>
    (await ask(server, prompts({ words: count }), 1)).promptTokens;
  const [short, long] = [await counted(few), await counted(2 * few)];
  if (short === undefined || long === undefined) return { words: tokens };
  const perWord = Math.max(0.25, (long - short) / few);
  return { words: Math.max(1, Math.round((tokens - (short - few * perWord)) / perWord)) };
}

/** Rounds in which this number of users send at the same moment. */
export async function measureUsers(
  server: ServerUnderTest,
  users: number,
  rounds: number,
  request: { size: PromptSize; answerTokens: number; prompts: (size: PromptSize) => string },
): Promise<UsersResult> {
  const answers: Answer[] = [];
  let ms = 0;
  for (let round = 0; round < rounds; round++) {
    const started = server.now();
    const asked = Array.from({ length: users }, () =>
      ask(server, request.prompts(request.size), request.answerTokens),
    );
    answers.push(...(await allOrFirstError(asked)));
    ms += server.now() - started;
  }
  const firsts = answers.map(({ firstMs }) => firstMs);
  const speeds = answers.map(({ tokens, restMs }) => ((tokens - 1) * 1000) / restMs);
  const tokens = answers.reduce((sum, answer) => sum + answer.tokens, 0);
  const prompt = answers.reduce((sum, { promptTokens = Number.NaN }) => sum + promptTokens, 0);
  const countsPrompts = !Number.isNaN(prompt);
  return {
    users,
    firstP50Ms: quantile(firsts, 0.5),
    firstP99Ms: quantile(firsts, 0.99),
    slowest: Math.min(...speeds),
    median: median(speeds),
    tokensPerSecond: (tokens * 1000) / ms,
    allTokensPerSecond: countsPrompts ? ((prompt + tokens) * 1000) / ms : undefined,
    promptTokens: countsPrompts ? prompt / answers.length : undefined,
    answerTokens: tokens / answers.length,
  };
}

/** Waits for all of them before it throws an error, so that no request is left running. */
async function allOrFirstError<T>(work: readonly Promise<T>[]): Promise<T[]> {
  const ended = await Promise.allSettled(work);
  const failed = ended.find((one) => one.status === "rejected");
  if (failed) throw failed.reason;
  return ended.map((one) => (one as PromiseFulfilledResult<T>).value);
}

/** One request; times its tokens as they come. */
async function ask(server: ServerUnderTest, prompt: string, maxTokens: number): Promise<Answer> {
  const { url, model, now } = server;
  const started = now();
  const response = await send(server, "/v1/completions", {
    model,
    prompt,
    max_tokens: maxTokens,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    stream_options: { include_usage: true },
  });
  let first: number | undefined;
  let last = started;
  let events = 0;
  let usage: Usage | undefined;
  for await (const event of eventsOf(response, server)) {
    if (event.error !== undefined) {
      throw new SourceError(
        `bench serve: ${url}: a stream ended with the error ${JSON.stringify(event.error)}, expected an answer. Does the server take ${maxTokens} more tokens?`,
      );
    }
    usage = event.usage ?? usage;
    if (!event.choices?.[0]?.text) continue;
    first ??= now();
    last = now();
    events++;
  }
  if (first === undefined) {
    throw new SourceError(
      `bench serve: ${url}: got a stream without text, expected tokens. Is "${model}" a model that generates?`,
    );
  }
  const tokens = count(usage?.completion_tokens) ?? events;
  return {
    firstMs: first - started,
    restMs: last - first,
    tokens,
    promptTokens: count(usage?.prompt_tokens),
  };
}

interface Usage {
  readonly prompt_tokens?: unknown;
  readonly completion_tokens?: unknown;
}

interface CompletionEvent {
  readonly choices?: readonly { readonly text?: unknown }[] | null;
  readonly usage?: Usage | null;
  readonly error?: unknown;
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? value : undefined;
}

/** A longer line of a stream is no event. */
const mostLineChars = 1 << 20;

async function* eventsOf(
  response: Response,
  { url, signal }: ServerUnderTest,
): AsyncGenerator<CompletionEvent> {
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for await (const piece of response.body ?? []) {
      rest += decoder.decode(piece, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop()!;
      if (rest.length > mostLineChars) throw notEvents(url, `a line above ${mostLineChars} bytes`);
      for (const line of lines) {
        const data = /^data:\s*(.*?)\s*$/.exec(line)?.[1];
        if (data !== undefined && data !== "[DONE]") yield parseEvent(data, url);
      }
    }
  } catch (error) {
    throw lost(error, url, signal);
  }
}

function parseEvent(data: string, url: string): CompletionEvent {
  try {
    const event: unknown = JSON.parse(data);
    if (typeof event === "object" && event !== null) return event;
  } catch {
    // said below
  }
  throw notEvents(url, data.slice(0, 100));
}

function notEvents(url: string, got: string): SourceError {
  return new SourceError(
    `bench serve: ${url}: got ${got}, expected a stream of JSON events, as OpenAI-compatible servers send them`,
  );
}

/** The models that a server has, by name. */
export async function servedModels(
  server: Omit<ServerUnderTest, "model">,
): Promise<readonly string[]> {
  const response = await send({ ...server, model: "" }, "/v1/models");
  const body = (await response.json().catch(() => null)) as { data?: unknown } | null;
  if (!Array.isArray(body?.data)) throw notEvents(`${server.url}/v1/models`, "no list of models");
  return body.data.flatMap((one: { id?: unknown } | null) =>
    typeof one?.id === "string" ? [one.id] : [],
  );
}

async function send(server: ServerUnderTest, path: string, body?: object): Promise<Response> {
  const { url, signal, apiKey } = server;
  let response: Response;
  try {
    response = await server.fetch(`${url}${path}`, {
      ...(body && { method: "POST", body: JSON.stringify(body) }),
      headers: {
        ...(body && { "content-type": "application/json" }),
        ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
      },
      signal,
    });
  } catch (error) {
    throw lost(error, url, signal);
  }
  if (response.ok) return response;
  const said = (await response.text().catch(() => "")).slice(0, 300);
  throw new SourceError(
    `bench serve: ${url}${path} answered ${response.status} (${said}), expected 200. Check the address, --served-model-name, and LANTERN_API_KEY if it wants a key`,
  );
}

function lost(error: unknown, url: string, signal: AbortSignal): Error {
  if (signal.aborted) return new AbortedError("the benchmark", { cause: error });
  if (error instanceof SourceError) return error;
  return new SourceError(
    `bench serve: ${url} did not answer (${messageOf(error)}), expected an OpenAI-compatible server there. Is it running?`,
    { cause: error },
  );
}

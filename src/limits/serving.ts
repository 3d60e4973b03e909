// Many users at once, and offline batches: the number of users that a device serves within an agreement (SLA), and the
// cost of a batch of requests. All users ask at the same moment, and their answers are generated together, one token of
// each in a batch, so that weights are read once for all of them. Only parts that grow with the users (KV cache,
// arithmetic, memory) set the limit.

import type { Device, Work } from "../api/rates.ts";
import { UsageError } from "../base/errors.ts";
import { decodeTotalWork } from "./decode.ts";
import type { LimitsModel } from "./limits-model.ts";
import { stateBytes } from "./memory.ts";
import { type Counting, weightBytesFor } from "./model-cost.ts";
import { prefillCountOf, prefillWork } from "./prefill.ts";
import { type Limit, limitOf, opsSum } from "./roofline.ts";

/** The speeds that every user is promised. */
export interface Sla {
  /** The first token comes within this time. */
  readonly firstTokenMs: number;
  /** After the first token, every user gets at least this many tokens a second. */
  readonly tokensPerSecond: number;
}

/** The usual agreement of a chat. */
export const usualSla: Sla = { firstTokenMs: 2000, tokensPerSecond: 20 };

/** The requests of all users: the same lengths, different texts. */
export interface RequestSize {
  readonly promptTokens: number;
  readonly answerTokens: number;
}

export const usualRequest: RequestSize = { promptTokens: 64, answerTokens: 64 };

/** The speeds that a device allows a given number of users. */
export interface UsersLimit {
  readonly users: number;
  /** Until the last of the users has a token. */
  readonly firstTokenMs: number;
  /** One token of every user, on average over the answer. */
  readonly batchMs: number;
  /** Speed of each user after the first token. */
  readonly tokensPerSecondEach: number;
  /** Tokens of all answers per second of the whole time, prompts included. */
  readonly tokensPerSecond: number;
  /** The bottleneck of generation. */
  readonly resource: Limit["resource"];
  /** Weights, and the state of every user. */
  readonly memoryBytes: number;
  /** Violations of the agreement; empty: all users are served. */
  readonly failures: readonly SlaFailure[];
}

export type SlaFailure = "first token" | "tokens/s" | "memory";

export interface MostUsers {
  /** The most users that are served; 0: not even one. */
  readonly users: number;
  /** Violations that one more user would cause. */
  readonly failures: readonly SlaFailure[];
}

/** A batch of requests without a user who waits. */
export interface BatchLimit extends RequestSize {
  readonly requests: number;
  /** Requests computed together: as many as the memory holds; 0: not even one. */
  readonly atOnce: number;
  readonly seconds: number;
  readonly resource: Limit["resource"];
  /** Generated tokens. */
  readonly tokensPerSecond: number;
  readonly tokensPerHour: number;
  /** With a price of an hour: the cost of the batch and of a million generated tokens. */
  readonly cost?: number;
  readonly costPerMillionTokens?: number;
}

/** The model and the device, and how work is counted. */
export interface ServingCase {
  readonly model: Pick<LimitsModel, "cost" | "state">;
  readonly device: Device;
  readonly counting: Counting;
  /** undefined: not known, everything fits. */
  readonly memoryBytes: number | undefined;
}

export function usersLimit(
  serving: ServingCase,
  users: number,
  request: RequestSize,
  sla: Sla = usualSla,
): UsersLimit {
  const { device } = serving;
  const { answerTokens } = request;
  const prompts = promptsWork(serving, users, request);
  const answers = answersWork(serving, users, request);
  const firstTokenMs = limitOf(prompts, device).seconds * 1000;
  const generation = limitOf(answers, device);
  const tokensPerSecondEach = (answerTokens - 1) / generation.seconds;
  const memoryBytes = bytesOf(serving, users, request);
  // One request's prompt may be computed while others generate: only the sum of the work is a limit.
  const all = limitOf(workSum(prompts, answers), device);
  const failures: SlaFailure[] = [];
  if (firstTokenMs > sla.firstTokenMs) failures.push("first token");
  if (tokensPerSecondEach < sla.tokensPerSecond) failures.push("tokens/s");
  if (memoryBytes > (serving.memoryBytes ?? Infinity)) failures.push("memory");
  return {
    users,
    firstTokenMs,
    batchMs: 1000 / tokensPerSecondEach,
    tokensPerSecondEach,
    tokensPerSecond: (users * answerTokens) / all.seconds,
    resource: generation.resource,
    memoryBytes,
    failures,
  };
}

/** No device serves more: ends the search where nothing grows with the users. */
const mostSearched = 2 ** 24;

/** The most users within the agreement. More users are never faster, so a binary search finds it. */
export function mostUsers(serving: ServingCase, request: RequestSize, sla: Sla): MostUsers {
  checkServing(request, sla);
  const failuresOf = (users: number) => usersLimit(serving, users, request, sla).failures;
  const users = largest(mostSearched, (count) => failuresOf(count).length === 0);
  return { users, failures: failuresOf(users + 1) };
}

export function batchLimit(
  serving: ServingCase,
  requests: number,
  request: RequestSize,
  pricePerHour?: number,
): BatchLimit {
  checkServing(request, usualSla);
  checkCount("batch", requests);
  if (pricePerHour !== undefined && !(pricePerHour >= 0 && Number.isFinite(pricePerHour))) {
    throw new UsageError(
      `price: got ${String(pricePerHour)}, expected an amount of at least 0 per hour`,
    );
  }
  const { memoryBytes = Infinity, device } = serving;
  const fits = (count: number) => bytesOf(serving, count, request) <= memoryBytes;
  const atOnce = largest(requests, fits);
  // Waiting requests take the slots of finished ones, so the last batches are full, too.
  const rounds = requests / Math.max(1, atOnce);
  const one = workSum(
    promptsWork(serving, Math.max(1, atOnce), request),
    answersWork(serving, Math.max(1, atOnce), request),
  );
  const { seconds, resource } = limitOf(times(rounds, one), device);
  const tokens = requests * request.answerTokens;
  const cost = pricePerHour === undefined ? undefined : (seconds / 3600) * pricePerHour;
  return {
    ...request,
    requests,
    atOnce,
    seconds,
    resource,
    tokensPerSecond: tokens / seconds,
    tokensPerHour: (tokens / seconds) * 3600,
    ...(cost !== undefined && { cost, costPerMillionTokens: (cost / tokens) * 1e6 }),
  };
}

/** The user counts of a table: powers of two, and `also`, ascending. */
export function userCounts(also: readonly number[]): number[] {
  const most = Math.max(1, ...also);
  const step = most > 4096 ? 4 : 2;
  const powers = Array.from(
    { length: Math.floor(Math.log(most) / Math.log(step) + 1e-9) + 1 },
    (_, power) => step ** power,
  );
  return [...new Set([...powers, ...also.filter((count) => count >= 1)])].sort((a, b) => a - b);
}

/** All prompts, up to the logits of each one's last token: weights are read once. */
function promptsWork(
  { model: { cost }, counting }: ServingCase,
  users: number,
  { promptTokens }: RequestSize,
): Work {
  const one = prefillWork(cost, promptTokens, prefillCountOf[counting]);
  const rest = one.bytes - weightBytesFor(cost, promptTokens);
  return {
    bytes: weightBytesFor(cost, users * promptTokens) + users * rest,
    ...opsSum([users, one]),
  };
}

/** The tokens after the first of all answers: in each batch, weights are read once for all users. */
function answersWork(
  { model: { cost } }: ServingCase,
  users: number,
  { promptTokens, answerTokens }: RequestSize,
): Work {
  const batches = answerTokens - 1;
  const one = decodeTotalWork(cost, promptTokens, batches);
  const rest = one.bytes - batches * cost.weightBytes;
  return {
    bytes: batches * weightBytesFor(cost, users) + users * rest,
    ...opsSum([users, one]),
  };
}

function bytesOf(
  { model: { cost, state } }: ServingCase,
  users: number,
  { promptTokens, answerTokens }: RequestSize,
): number {
  return cost.storedBytes + users * stateBytes(state, promptTokens + answerTokens);
}

function workSum(a: Work, b: Work): Work {
  return { bytes: a.bytes + b.bytes, ...opsSum([1, a], [1, b]) };
}

function times(factor: number, work: Work): Work {
  return { bytes: factor * work.bytes, ...opsSum([factor, work]) };
}

/** The largest allowed count up to `most`; 0 if there is none. If n is allowed, fewer are allowed too. */
function largest(most: number, isAllowed: (count: number) => boolean): number {
  let [allowed, refused] = [0, most + 1];
  while (refused - allowed > 1) {
    const middle = Math.floor((allowed + refused) / 2);
    if (isAllowed(middle)) allowed = middle;
    else refused = middle;
  }
  return allowed;
}

function checkServing({ promptTokens, answerTokens }: RequestSize, sla: Sla): void {
  checkCount("promptTokens", promptTokens);
  checkCount("answerTokens", answerTokens, 2);
  for (const [name, value] of Object.entries(sla)) {
    if (value > 0 && Number.isFinite(value)) continue;
    throw new UsageError(`sla: ${name}: got ${String(value)}, expected a number above 0`);
  }
}

export function checkCount(name: string, value: number, least = 1): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw new UsageError(
    `${name}: got ${String(value)}, expected a whole number of at least ${least}`,
  );
}

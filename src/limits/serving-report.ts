// The part of a LimitsReport about many users: a table of user counts, the most that are served, a batch of requests,
// and the measurements of `lantern bench serve`, each beside its limit.

import {
  type BatchLimit,
  batchLimit,
  checkCount,
  type MostUsers,
  mostUsers,
  type RequestSize,
  type ServingCase,
  type Sla,
  type UsersLimit,
  userCounts,
  usersLimit,
  usualRequest,
  usualSla,
} from "./serving.ts";

export interface ServingOptions {
  /** Tokens of each request (default 64 each). */
  readonly promptTokens?: number | undefined;
  readonly answerTokens?: number | undefined;
  /** Also report on this number of users. */
  readonly users?: number | undefined;
  /** Default: the first token within 2 s, 20 tokens/s for each user. */
  readonly sla?: Sla | undefined;
  /** Also report on a batch of this many requests. */
  readonly batch?: number | undefined;
  /** Price of the device per hour, in any currency. */
  readonly pricePerHour?: number | undefined;
}

/** Measurements of `lantern bench serve` with `users` users. */
export interface MeasuredLoad extends RequestSize {
  readonly users: number;
  readonly firstP50Ms: number;
  readonly firstP99Ms: number;
  /** Tokens per second of the slowest user, of the middle one, and of all together. */
  readonly slowest: number;
  readonly median: number;
  readonly tokensPerSecond: number;
  /** Cores that other programs used meanwhile. */
  readonly othersCores: number;
  /** ISO date and time. */
  readonly at: string;
}

export interface MeasuredServing extends MeasuredLoad {
  readonly meetsSla: boolean;
  /** All tokens per second: the limit, and the fraction of it that was reached. */
  readonly limitTokensPerSecond: number;
  readonly fraction: number;
}

export interface ServingReport extends RequestSize {
  readonly sla: Sla;
  /** The number that was asked about. */
  readonly users: number | undefined;
  readonly rows: readonly UsersLimit[];
  readonly most: MostUsers;
  readonly batch?: BatchLimit;
  readonly measured: readonly MeasuredServing[];
}

export function servingReport(
  serving: ServingCase,
  options: ServingOptions,
  loads: readonly MeasuredLoad[] = [],
): ServingReport {
  const { users, sla = usualSla, batch, pricePerHour } = options;
  const request: RequestSize = {
    promptTokens: options.promptTokens ?? usualRequest.promptTokens,
    answerTokens: options.answerTokens ?? usualRequest.answerTokens,
  };
  if (users !== undefined) checkCount("users", users);
  const most = mostUsers(serving, request, sla);
  const counts = userCounts([most.users, most.users + 1, ...(users === undefined ? [] : [users])]);
  return {
    ...request,
    sla,
    users,
    rows: counts.map((count) => usersLimit(serving, count, request, sla)),
    most,
    ...(batch !== undefined && { batch: batchLimit(serving, batch, request, pricePerHour) }),
    measured: loads.map((load) => besideLimit(serving, load, sla)),
  };
}

function besideLimit(serving: ServingCase, load: MeasuredLoad, sla: Sla): MeasuredServing {
  const limit = usersLimit(serving, load.users, load, sla).tokensPerSecond;
  return {
    ...load,
    meetsSla: meetsSla(load, sla),
    limitTokensPerSecond: limit,
    fraction: load.tokensPerSecond / limit,
  };
}

/** Nearly every user has a first token in time, and the slowest is fast enough. */
export function meetsSla(
  load: Pick<MeasuredLoad, "firstP99Ms" | "slowest">,
  sla: Sla = usualSla,
): boolean {
  return load.firstP99Ms <= sla.firstTokenMs && load.slowest >= sla.tokensPerSecond;
}

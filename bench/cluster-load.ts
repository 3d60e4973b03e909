// The clients of bench/cluster.ts: streamed answers, one after the other, counted in a window of time. Counting starts when every client
// has had a token, and ends while all of them still have answers coming: nobody waits for the slowest worker at the end.

import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

export interface LoadOptions {
  /** Length of the window. */
  readonly seconds: number;
  /** Load before it opens, after every client's first token. */
  readonly warmSeconds: number;
  /** Tokens of an answer. */
  readonly tokens: number;
}

export interface Loaded {
  readonly perSecond: number;
  /** Answers that ended in the window, per second. */
  readonly answers: number;
  /** Milliseconds to each first token of the window. */
  readonly firsts: readonly number[];
  /** What `used` said at the end of the window, less what it said at its beginning, per second. */
  readonly used: readonly number[];
}

const agent = new Agent({ keepAlive: true });

/** Prompts are numbered, so that no two are the same in a run. */
let prompts = 0;

/** Tokens and events of all answers that ended: an event may bring several tokens. */
const ended = { tokens: 0, events: 0 };

/** `users` clients take turns at the urls; `used` is asked when the window opens and when it closes. */
export async function underLoad(
  urls: readonly string[],
  users: number,
  { seconds, warmSeconds, tokens }: LoadOptions,
  used: () => readonly number[],
): Promise<Loaded> {
  const stop = new AbortController();
  const everybody = Promise.withResolvers<void>();
  const firsts: number[] = [];
  let [begun, events, answers, isOpen] = [0, 0, 0, false];
  const client = async (at: number): Promise<void> => {
    for (let i = 0; !stop.signal.aborted; i++) {
      const asked = performance.now();
      let isFirst = true;
      const isAnswered = await answer(urls[at % urls.length]!, tokens, stop.signal, (count) => {
        if (isFirst && i === 0 && ++begun === users) everybody.resolve();
        if (isFirst && isOpen) firsts.push(performance.now() - asked);
        isFirst = false;
        if (isOpen) events += count;
      });
      if (isAnswered && isOpen) answers++;
    }
  };
  const clients = Promise.all(Array.from({ length: users }, (_, at) => client(at)));
  await Promise.race([everybody.promise, clients]);
  await Promise.race([pause(1000 * warmSeconds), clients]);
  const before = used();
  const began = performance.now();
  isOpen = true;
  await Promise.race([pause(1000 * seconds), clients]);
  isOpen = false;
  const took = (performance.now() - began) / 1000;
  const after = used();
  stop.abort();
  await clients;
  const perEvent = ended.events > 0 ? ended.tokens / ended.events : 1;
  return {
    ...{ perSecond: (events * perEvent) / took, answers: answers / took },
    firsts,
    used: after.map((value, at) => (value - before[at]!) / took),
  };
}

/** A streamed answer; `onEvents` is told how many events came. False: stopped before its end. */
async function answer(
  url: string,
  tokens: number,
  signal: AbortSignal,
  onEvents: (count: number) => void,
): Promise<boolean> {
  const at = ++prompts;
  const body = JSON.stringify({
    ...{ model: "bench", prompt: `${at} once there was a ${"small ".repeat(at % 7)}` },
    ...{ max_tokens: tokens, ignore_eos: true, temperature: 1, seed: at },
    ...{ stream: true, stream_options: { include_usage: true } },
  });
  try {
    // Not fetch(): its streams take several times as much of the processor, which clients share with everybody here.
    const asked = request(`${url}/v1/completions`, {
      ...{ method: "POST", agent, signal, headers: { "content-type": "application/json" } },
    });
    asked.end(body);
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    const parts: string[] = [];
    let events = 0;
    response.setEncoding("utf8").on("data", (part: string) => {
      const count = part.split('"text":"').length - 1;
      events += count;
      if (count > 0) onEvents(count);
      parts.push(part);
    });
    await once(response, "end");
    const text = parts.join("");
    const usage = [...text.matchAll(/"completion_tokens":(\d+)/g)].at(-1);
    if (response.statusCode !== 200 || !usage) {
      throw new Error(`the server answered ${response.statusCode}: ${text.slice(0, 300)}`);
    }
    ended.tokens += Number(usage[1]);
    ended.events += events;
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    throw error;
  }
}

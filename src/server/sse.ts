// Streams to a client: server-sent events and lines of JSON. A stream is an async iterator of events; when the client
// leaves, the iterator is told to return, which aborts its source. An error in the middle of a stream becomes a last
// event.
//
// While a request waits for its turn or for its prompt, there may be nothing to send for minutes. Proxies and clients
// cut silent connections: server-sent events have comments for that, which every client skips.

import { detailsOf } from "../base/errors.ts";
import type { ServerContext } from "./context.ts";
import { type ApiErrorFacts, describeError } from "./errors.ts";

const encoder = new TextEncoder();

/** One server-sent event; `name` is its type, if the protocol has types. */
export interface ServerEvent {
  name?: string;
  /** What the client sends as Last-Event-ID to resume after it. */
  id?: string;
  /** JSON, or plain text. */
  data: object | string;
}

function eventText({ name, id, data }: ServerEvent): string {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  const type = name === undefined ? "" : `event: ${name}\n`;
  return `${type}${id === undefined ? "" : `id: ${id}\n`}data: ${text}\n\n`;
}

const eventHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no", // a proxy should pass every event on immediately
};

/** Ignored by clients, but shows everybody in between that the connection is in use. */
const heartbeat = encoder.encode(": waiting\n\n");

export interface StreamEnd<T> {
  server: ServerContext;
  /** The event for an error; the status is already 200. */
  error(facts: ApiErrorFacts): T[];
}

/** text/event-stream */
export function eventStream(
  events: AsyncIterable<ServerEvent>,
  end: StreamEnd<ServerEvent>,
): Response {
  return new Response(toBody(events, end, eventText, heartbeat), { headers: eventHeaders });
}

/**
 * The events of a request that may first have to wait for its turn. An early error is thrown, so that it gets an HTTP
 * status; after one heartbeat of waiting, the stream starts and waits.
 */
export async function eventsOf<T>(
  { settings }: ServerContext,
  starting: Promise<T>,
  events: (started: T) => AsyncIterable<ServerEvent>,
): Promise<AsyncIterable<ServerEvent>> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(late.resolve, settings.heartbeatMs, undefined);
  try {
    const soon = await Promise.race([starting.then((started) => ({ started })), late.promise]);
    if (soon) return events(soon.started);
  } finally {
    clearTimeout(timer);
  }
  starting.catch(() => {}); // reported to the reader of the stream
  return (async function* () {
    yield* events(await starting);
  })();
}

/** application/x-ndjson: one JSON object per line. */
export function lineStream(lines: AsyncIterable<object>, end: StreamEnd<object>): Response {
  const body = toBody(lines, end, (line) => `${JSON.stringify(line)}\n`);
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
}

function toBody<T>(
  items: AsyncIterable<T>,
  end: StreamEnd<T>,
  toText: (item: T) => string,
  beat?: Uint8Array,
): ReadableStream<Uint8Array> {
  const iterator = items[Symbol.asyncIterator]();
  let gone = false; // the client has gone: there is no reader
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const timer =
        beat &&
        setInterval(() => {
          // A client that does not read gets no more heartbeats.
          if (!gone && controller.desiredSize! > 0) controller.enqueue(beat);
        }, end.server.settings.heartbeatMs);
      try {
        const { done, value } = await iterator.next();
        if (gone) return;
        if (done) controller.close();
        else controller.enqueue(encoder.encode(toText(value)));
      } catch (error) {
        if (gone) return;
        const facts = describeError(error, (bug) => end.server.log(detailsOf(bug)));
        for (const item of end.error(facts)) controller.enqueue(encoder.encode(toText(item)));
        controller.close();
      } finally {
        clearInterval(timer);
      }
    },
    async cancel() {
      gone = true;
      await iterator.return?.();
    },
  });
}

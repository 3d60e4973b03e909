// Streams to a client: server-sent events, lines of JSON and bytes. A stream is an async iterator of events; when the client
// leaves, the iterator is told to return, which aborts its source. An error in the middle of a stream becomes a last
// event.
//
// While a request waits in the queue or for its prompt, there may be nothing to send for minutes. Proxies and clients
// cut silent connections: server-sent events have comments for that, which every client skips, and white space before a line of JSON
// means nothing.

import { detailsOf } from "../../src/base/errors.ts";
import type { ServerContext } from "./context.ts";
import { type ApiErrorFacts, describeError } from "./errors.ts";
import { beats, repeat } from "./late-answer.ts";

const encoder = new TextEncoder();

/** One server-sent event; `name` is its type, if the protocol has types. */
export interface ServerEvent {
  name?: string;
  /** The id that the client sends as Last-Event-ID to resume after it. */
  id?: string;
  /** JSON, or plain text. */
  data: object | string;
}

function eventText({ name, id, data }: ServerEvent): string {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  const type = name === undefined ? "" : `event: ${name}\n`;
  return `${type}${id === undefined ? "" : `id: ${id}\n`}data: ${text}\n\n`;
}

export const eventHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no", // a proxy should pass every event on immediately
};

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
  const body = toBody(events, (event) => encoder.encode(eventText(event)), end, beats.events);
  return new Response(body, { headers: eventHeaders });
}

/**
 * The events of a request that may first have to wait in the queue. An early error is thrown, so that it gets an HTTP
 * status; after one heartbeat of waiting, the stream starts and waits.
 */
export async function eventsOf<T>(
  { settings }: ServerContext,
  starting: Promise<T>,
  events: (started: T) => AsyncIterable<ServerEvent>,
): Promise<AsyncIterable<ServerEvent>> {
  if (!Number.isFinite(settings.heartbeatMs)) return events(await starting);
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
  const body = toBody(
    lines,
    (line) => encoder.encode(`${JSON.stringify(line)}\n`),
    end,
    beats.lines,
  );
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
}

/** Bytes as the client takes them; an error cuts the connection off. */
export function byteStream(
  pieces: AsyncIterable<Uint8Array>,
  headers: Record<string, string>,
): Response {
  return new Response(
    toBody(pieces, (piece) => piece),
    { headers },
  );
}

function toBody<T>(
  items: AsyncIterable<T>,
  encode: (item: T) => Uint8Array,
  end?: StreamEnd<T>,
  beat = "",
): ReadableStream<Uint8Array> {
  const iterator = items[Symbol.asyncIterator]();
  let gone = false; // the client has gone: there is no reader
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      using _heart = repeat(
        () => {
          // A client that does not read gets no more heartbeats.
          if (!gone && controller.desiredSize! > 0) controller.enqueue(encoder.encode(beat));
        },
        end && beat !== "" ? end.server.settings.heartbeatMs : Number.POSITIVE_INFINITY,
      );
      try {
        const { done, value } = await iterator.next();
        if (gone) return;
        if (done) controller.close();
        else controller.enqueue(encode(value));
      } catch (error) {
        if (gone) return;
        if (!end) throw error;
        const facts = describeError(error, (bug) => end.server.log(detailsOf(bug)));
        for (const item of end.error(facts)) controller.enqueue(encode(item));
        controller.close();
      }
    },
    async cancel() {
      gone = true;
      await iterator.return?.();
    },
  });
}

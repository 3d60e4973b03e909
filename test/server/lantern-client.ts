// The least of a client of /lantern/v1: JSON requests, and server-sent events read by hand, as the standard says.

import { expect } from "vitest";

export interface SseEvent {
  name: string;
  id: string | undefined;
  data: Record<string, unknown>;
}

/** The JSON of an answer, whose status must be `status`. */
export async function request<T = Record<string, unknown>>(
  url: string,
  method: string = "GET",
  body?: unknown,
  status: number = 200,
): Promise<T> {
  const response = await fetch(url, {
    method,
    ...(body !== undefined && {
      headers: { "content-type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
    }),
  });
  const text = await response.text();
  expect(response.status, `${method} ${url}: ${text.slice(0, 500)}`).toBe(status);
  return JSON.parse(text) as T;
}

/** Events until the stream ends, or until there are `stopAfter`: then the connection is cut. */
export async function follow(
  url: string,
  options: { lastEventId?: string; stopAfter?: number; onEvent?: () => void } = {},
): Promise<SseEvent[]> {
  const { lastEventId, stopAfter = Number.POSITIVE_INFINITY } = options;
  const response = await fetch(url, {
    headers: lastEventId === undefined ? {} : { "last-event-id": lastEventId },
  });
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const events: SseEvent[] = [];
  let text = "";
  const decoder = new TextDecoder();
  for await (const piece of response.body!) {
    text += decoder.decode(piece, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop()!;
    events.push(...blocks.map(parseEvent));
    options.onEvent?.();
    if (events.length >= stopAfter) return events.slice(0, stopAfter);
  }
  return events;
}

function parseEvent(block: string): SseEvent {
  const fields = new Map(
    block.split("\n").map((line) => line.split(/: (.*)/s) as [string, string]),
  );
  return {
    name: fields.get("event") ?? "message",
    id: fields.get("id"),
    data: JSON.parse(fields.get("data")!) as Record<string, unknown>,
  };
}

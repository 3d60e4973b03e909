// Answers that take long, before their first byte: a client or a proxy that hears nothing gives up (nginx after a minute, undici, which
// is under Node's fetch, after five). From some time on the answer begins, with status 200, and gets bytes that its reader skips until
// the rest is there: white space before JSON and lines of JSON, comments before events. An error after that is in the body alone.

import type { Call } from "./route.ts";

type Kind = "json" | "lines" | "events";

const types: Readonly<Record<Kind, string>> = {
  json: "application/json",
  lines: "application/x-ndjson",
  events: "text/event-stream; charset=utf-8",
};

/** Ollama's routes that stream unless a request says otherwise. */
const streamsAnyway = /^\/api\/(chat|generate|create|pull|push)$/;

function kindOf({ route, asksStream }: Call): Kind {
  if (route.path.startsWith("/api/")) {
    return streamsAnyway.test(route.path) && asksStream !== false ? "lines" : "json";
  }
  return asksStream === true ? "events" : "json";
}

/** Bytes that readers skip. */
export const beats: Readonly<Record<Kind, string>> = {
  json: " ",
  lines: " ",
  events: ": waiting\n\n",
};

/** A timer that may be asked never to run. */
export function repeat(run: () => void, everyMs: number): Disposable {
  const timer = Number.isFinite(everyMs) ? setInterval(run, everyMs) : undefined;
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** The answer itself if it is there in time, else one that has begun. */
export async function answerInTime(call: Call, answering: Promise<Response>): Promise<Response> {
  const { patienceMs, heartbeatMs } = call.server.settings;
  if (call.request.method !== "POST" || !Number.isFinite(Math.max(patienceMs, heartbeatMs))) {
    return await answering;
  }
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(late.resolve, patienceMs, undefined);
  const inTime = await Promise.race([answering, late.promise]);
  clearTimeout(timer);
  return inTime ?? begun(kindOf(call), answering, heartbeatMs);
}

function begun(kind: Kind, answering: Promise<Response>, everyMs: number): Response {
  const utf8 = new TextEncoder();
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  let timer: Disposable | undefined;
  let isGone = false;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      const beat = utf8.encode(beats[kind]);
      controller.enqueue(beat);
      timer = repeat(() => {
        if (controller.desiredSize! > 0) controller.enqueue(beat);
      }, everyMs);
    },
    async pull(controller) {
      const response = await answering;
      timer?.[Symbol.dispose]();
      if (isGone) return;
      if (!response.ok && kind !== "json") {
        const text = await response.text();
        const said = kind === "lines" ? `${text}\n` : `event: error\ndata: ${text}\n\n`;
        controller.enqueue(utf8.encode(said));
        controller.close();
        return;
      }
      reader ??= response.body?.getReader();
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      isGone = true;
      timer?.[Symbol.dispose]();
      if (reader) await reader.cancel();
      else await answering.then(({ body: unread }) => unread?.cancel());
    },
  });
  return new Response(body, {
    headers: { "content-type": types[kind], "x-accel-buffering": "no" },
  });
}

// llama-server's routes for streams that outlast their connection (kept-streams.ts): GET /v1/stream?conv_id=ID&from=BYTE reads on,
// DELETE ends it, POST /v1/streams/lookup tells which of some conversations have one. A stream is found by its id alone, by those who
// have the API key that it was asked for with.

import * as z from "zod";
import { noRules, readFields } from "../body.ts";
import { invalidRequest, notFound, openaiErrors } from "../errors.ts";
import { longestId } from "../kept-streams.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { eventHeaders } from "../sse.ts";
import { ownerOf } from "../stream-keeper.ts";

function idOf({ url }: Call): string {
  const id = url.searchParams.get("conv_id") ?? "";
  if (id !== "" && id.length <= longestId) return id;
  throw invalidRequest(
    `"conv_id": got ${id === "" ? "none" : `${id.length} characters`}, expected the X-Conversation-Id of a request`,
    "conv_id",
  );
}

function readOn(call: Call): Response {
  const id = idOf(call);
  const stream = call.server.streams.get(id, ownerOf(call));
  if (!stream) {
    throw notFound(
      "there is no stream of this conversation, or it has ended minutes ago. Send the request again",
      "conv_id",
      "stream_not_found",
    );
  }
  const given = call.url.searchParams.get("from") ?? "0";
  const from = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN;
  if (!(from <= stream.facts().total_bytes)) {
    const shown = JSON.stringify(given.slice(0, 40));
    throw invalidRequest(
      `"from": got ${shown}, expected how many bytes of the stream were read, at most ${stream.facts().total_bytes}`,
      "from",
    );
  }
  if (from < stream.dropped) {
    throw invalidRequest(
      `"from": got ${from}, but the first ${stream.dropped} bytes of this stream are no longer kept. Send the request again`,
      "from",
    );
  }
  return new Response(stream.read(from), { headers: eventHeaders });
}

const lookupFields = z.object({
  conversation_ids: z.array(z.string().min(1).max(longestId)).max(1000),
});

async function lookUp(call: Call): Promise<Response> {
  const { conversation_ids: ids } = await readFields(call, lookupFields, noRules);
  const owner = ownerOf(call);
  return json(ids.flatMap((id) => call.server.streams.of(id, owner)).map((one) => one.facts()));
}

function end(call: Call): Response {
  call.server.streams.remove(idOf(call), ownerOf(call));
  return new Response(null, { status: 204 });
}

export const streamRoutes: RouteFamily = {
  name: "streams",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/v1/stream", access: "use", handle: readOn },
    { method: "DELETE", path: "/v1/stream", access: "use", handle: end },
    { method: "POST", path: "/v1/streams/lookup", access: "use", handle: lookUp },
  ],
};

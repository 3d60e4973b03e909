// Which requests are answered to their end without their client, and by whom their streams are read on (kept-streams.ts): those with the
// header X-Conversation-Id that ask for a stream of events.

import { longestId } from "./kept-streams.ts";
import type { Call } from "./route.ts";

/** Without keys, all clients are one: a client that lost its network may come back with another address. */
export const ownerOf = ({ client, server }: Call): string =>
  server.settings.access.apiKeys.length > 0 ? client : "";

/** The conversation whose stream outlasts its connection; undefined: the request ends with it. */
function conversationOf({ request }: Call): string | undefined {
  const id = request.headers.get("x-conversation-id") ?? "";
  return id === "" || id.length > longestId ? undefined : id;
}

export const isKept = (call: Call): boolean =>
  call.asksStream === true && conversationOf(call) !== undefined;

/** A stream of events goes to those who read on as well. */
export function keptIfAsked(call: Call, response: Response): Response {
  const id = isKept(call) ? conversationOf(call) : undefined;
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  if (id === undefined || !isStream || !response.body) return response;
  const stream = call.server.streams.add(id, ownerOf(call), () => call.end());
  if (!stream) return response;
  void stream.fill(response.body);
  return new Response(stream.read(0), { headers: response.headers });
}

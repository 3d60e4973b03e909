// The servers of tools that this server was started with (MCP), and a call of one of their tools.

import { RequestError, sentence } from "../api.ts";
import type { CallEnd, ToolCall, ToolServers } from "../api-types.ts";
import { client } from "./connection.ts";
import { Store } from "./store.ts";

const none: ToolServers = { enabled: false, servers: [], tools: [] };

/** undefined: not known yet. */
export const toolServers: Store<ToolServers | undefined> = new Store<ToolServers | undefined>(
  undefined,
);

export async function loadToolServers(): Promise<void> {
  try {
    toolServers.set(await client.toolServers());
  } catch (error) {
    const isOld = error instanceof RequestError && error.status === 404;
    if (!isOld) throw error;
    toolServers.set(none);
  }
}

export type CallResult = Pick<CallEnd, "state" | "result" | "by">;

/** Running calls, by a key of their own: they continue when another page is shown. */
export const runningCalls: Store<ReadonlyMap<string, AbortController>> = new Store<
  ReadonlyMap<string, AbortController>
>(new Map());

/** Runs a call that the person has confirmed, and passes its result on. */
export async function runCall(
  key: string,
  call: ToolCall,
  server: string,
  onEnd: (result: CallResult) => Promise<void>,
): Promise<void> {
  if (runningCalls.value.has(key)) return;
  const stop = new AbortController();
  runningCalls.set(new Map([...runningCalls.value, [key, stop]]));
  try {
    await onEnd(await resultOf(call, server, stop.signal));
  } finally {
    runningCalls.set(new Map([...runningCalls.value].filter(([other]) => other !== key)));
  }
}

/** An error is a result, too: the model reads it. */
async function resultOf(call: ToolCall, server: string, signal: AbortSignal): Promise<CallResult> {
  const failed = (result: string) => ({ state: "failed", result, by: server }) as const;
  let values: unknown;
  try {
    values = JSON.parse(call.arguments || "{}");
  } catch {
    return failed("the arguments are not JSON");
  }
  try {
    const { text, is_error, full_length } = await client.callTool(call.name, values, signal);
    const cut =
      full_length === undefined
        ? ""
        : `\n[${full_length - text.length} more letters were left out]`;
    return { state: is_error ? "failed" : "done", result: `${text}${cut}`, by: server };
  } catch (error) {
    return failed(signal.aborted ? "the user stopped it" : sentence(error));
  }
}

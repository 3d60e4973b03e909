// Runs one call of a tool within its limits: time, size of the result, an abort. The result is always a text for the model: a
// tool's failure is not a failure of the answer.

import type { ToolOutcome } from "../../api/api.ts";
import { messageOf } from "../../base/errors.ts";
import type { ReadyTool } from "./tool-set.ts";

export interface CallLimits {
  readonly timeoutMs: number;
  /** Characters of the result that the model is told. */
  readonly maxText: number;
  /** Stops the call. */
  readonly signal: AbortSignal;
}

type Ended = Pick<ToolOutcome, "status" | "text" | "fullLength">;

/** A tool that ignores its signal continues by itself; its result is dropped. */
export async function runCall(
  tool: ReadyTool,
  id: string,
  args: unknown,
  { timeoutMs, maxText, signal }: CallLimits,
): Promise<Ended> {
  if (signal.aborted) return stopped;
  const controller = new AbortController();
  const { promise: ended, resolve } = Promise.withResolvers<Ended>();
  const onAbort = (): void => resolve(stopped);
  const timer = setTimeout(
    () => resolve({ status: "timeout", text: `error: the tool took more than ${timeoutMs} ms` }),
    timeoutMs,
  );
  signal.addEventListener("abort", onAbort, { once: true });
  const run = async (): Promise<Ended> => {
    try {
      const value = await tool.run(args as never, { id, signal: controller.signal });
      return shortened("ok", textOf(value), maxText);
    } catch (error) {
      return shortened("failed", `error: ${messageOf(error)}`, maxText);
    }
  };
  void run().then(resolve);
  try {
    return await ended;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
    controller.abort(); // the rest of the tool's work is useless
  }
}

const stopped: Ended = { status: "stopped", text: "error: the user stopped the call" };

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined ? "" : (JSON.stringify(value) ?? String(value));
}

/** Only the beginning of a long result, with a note about that for the model. */
function shortened(status: Ended["status"], text: string, maxText: number): Ended {
  if (text.length <= maxText) return { status, text };
  const isPair = /[\uD800-\uDBFF]/.test(text[maxText - 1] ?? "");
  const begin = text.slice(0, isPair ? maxText - 1 : maxText);
  const note = `\n[shortened: the first ${begin.length} of ${text.length} characters]`;
  return { status, text: begin + note, fullLength: text.length };
}

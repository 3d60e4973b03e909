// An answer with tools: the model writes, its calls are checked and run, their results go back to it, and so on until it calls
// nothing more or its steps are used up. The conversation so far comes in, and is returned with all messages that were added.
//
// A tool's result is data: it becomes the content of a tool message, and changes no option of the answer.

import type {
  ChatMessage,
  GenerateOptions,
  GenerationResult,
  StopReason,
  ToolCall,
  ToolDecision,
  ToolOutcome,
} from "../../api/api.ts";
import { UsageError } from "../../base/errors.ts";
import { AnswerReader, promptEnd } from "../../chat/answer/answer-reader.ts";
import { shownConversation } from "../../chat/answer/generic.ts";
import { CallGrammar, type ForcedCall } from "./call-grammar.ts";
import {
  type AnsweringModel,
  type EmittedEvent,
  type EndedAnswer,
  readStep,
  stepMessage,
  type WrittenCall,
} from "./read-step.ts";
import { runCall } from "./run-call.ts";
import type { ReadyTool } from "./tool-set.ts";

export interface ToolRequest {
  readonly tools: readonly ReadyTool[];
  /** The forced call of the first step; afterwards the model decides. */
  readonly forced: ForcedCall;
  readonly maxSteps: number;
  readonly timeoutMs: number;
  readonly maxText: number;
  readonly onCall?: ((call: ToolCall) => ToolDecision | Promise<ToolDecision>) | undefined;
  readonly generate: GenerateOptions;
  readonly signal: AbortSignal;
  readonly emit: (event: EmittedEvent) => void;
}

export async function answerWithTools(
  model: AnsweringModel,
  asked: readonly ChatMessage[],
  request: ToolRequest,
): Promise<EndedAnswer> {
  const { tools, maxSteps, signal, emit } = request;
  const own = await model.answerFormat();
  if (own === undefined) {
    throw new UsageError(
      `send(): ${model.info.name} cannot call tools: it has no chat template. Choose one with chatTemplate, or send without tools`,
    );
  }
  const offered = tools.map(({ name, description, schema }) => ({
    type: "function",
    function: { name, description, parameters: schema },
  }));
  const { format, isGeneric } = shownConversation(own, asked, offered, false);
  const grammar = await CallGrammar.of(format, tools, model.grammarProblem);
  const messages = [...asked];
  const calls: ToolOutcome[] = [];
  const steps: GenerationResult[] = [];
  for (let step = 1; ; step++) {
    const forced = step === 1 ? request.forced : undefined;
    const shown = shownConversation(own, messages, offered, forced !== undefined);
    const prompt = await model.render(shown.messages, shown.tools as object[], signal);
    const start = promptEnd(prompt?.text ?? "", format);
    const held = await grammar.at(start, forced);
    // Marks around calls are often control tokens.
    const generate = { ...request.generate, ...(held && { grammar: held }), special: true };
    const read = tools.map(({ name, schema }) => ({ name, parameters: schema }));
    const reader = new AnswerReader({ format, tools: read, start });
    const said = await readStep(model, { prompt, reader, step, generate, signal, emit });
    steps.push(said.result);
    const { stopReason } = said.result;
    const isLast = said.calls.length === 0 || !isComplete(stopReason) || step === maxSteps;
    const message = stepMessage(said);
    if (message) messages.push(message);
    for (const call of said.calls) {
      const notRun = isLast ? notRunBecause(stopReason, maxSteps) : undefined;
      const outcome = notRun ? { call: call.asCall(), ...notRun } : await take(call, request);
      emit({ kind: "outcome", outcome });
      calls.push(outcome);
      messages.push(toolMessage(outcome));
    }
    const isStopped = signal.aborted && !isLast;
    if (!isLast && !isStopped) continue;
    // Templates expect an answer after results.
    if (messages.at(-1)?.role === "tool") messages.push({ role: "assistant", content: "" });
    const isSpent = said.calls.length > 0 && isComplete(stopReason);
    const reason = isStopped ? "aborted" : isSpent ? "steps" : stopReason;
    const { content: text, reasoning } = said;
    const toolFormat = isGeneric ? "generic" : "template";
    const told = { text, reasoning, calls, stopReason: reason, toolFormat, steps } as const;
    return { answer: { ...said.result, ...told, value: undefined }, messages };
  }
}

type NotRun = Pick<ToolOutcome, "status" | "text">;

/** Whether the model ended by itself. */
const isComplete = (reason: StopReason): boolean => reason === "end" || reason === "stop";

function notRunBecause(reason: StopReason, maxSteps: number): NotRun {
  if (isComplete(reason)) {
    return { status: "steps", text: `not run: the limit of ${maxSteps} steps was reached` };
  }
  return { status: "stopped", text: "not run: the answer was cut off" };
}

/** Checks a call, asks whether it may run, and runs it. */
async function take(written: WrittenCall, request: ToolRequest): Promise<ToolOutcome> {
  const { tools, timeoutMs, maxText, onCall, signal, emit } = request;
  const fail = (status: ToolOutcome["status"], text: string): ToolOutcome => ({
    call: written.asCall(),
    status,
    text: `error: ${text}`,
  });
  const tool = tools.find(({ name }) => name === written.name);
  if (tool === undefined) {
    const known = tools.map(({ name }) => name).join(", ");
    return fail("unknown", `there is no tool "${written.name.slice(0, 64)}". Tools: ${known}`);
  }
  const parsed = written.parsed();
  if (parsed === undefined) {
    return fail("arguments", `the arguments are no JSON: ${written.text.slice(0, 200)}`);
  }
  const checked = await tool.check(parsed.value);
  if (checked.problems !== undefined) {
    return fail("arguments", `the arguments do not fit: ${checked.problems.join("; ")}`);
  }
  const call = written.asCall(checked.value);
  if (signal.aborted) return fail("stopped", "the user stopped the call");
  const decision = await onCall?.(call);
  if (decision === false || typeof decision === "string") {
    const reason = decision === false || decision === "" ? "" : `: ${decision}`;
    return { call, status: "refused", text: `error: the user refused this call${reason}` };
  }
  emit({ kind: "run", call });
  return {
    call,
    ...(await runCall(tool, written.id, checked.value, { timeoutMs, maxText, signal })),
  };
}

function toolMessage({ call, text }: ToolOutcome): ChatMessage {
  return { role: "tool", content: text, tool_call_id: call.id, name: call.name };
}

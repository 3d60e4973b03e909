// An answer with tools: the model writes, its calls are checked and run, their results go back to it, and so on until it calls
// nothing more or its steps are used up. The conversation so far comes in, and goes out with all that was added.
//
// What a tool returns is data: it becomes the content of a tool message, and changes no option of the answer.

import type {
  AnswerEvent,
  ChatMessage,
  GenerateOptions,
  Generation,
  GenerationResult,
  StopReason,
  ToolAnswer,
  ToolCall,
  ToolDecision,
  ToolOutcome,
} from "../../api/api.ts";
import { UsageError } from "../../base/errors.ts";
import type { RenderedPrompt } from "../../base/rendered-prompt.ts";
import { AnswerReader, type AnswerStart, promptEnd } from "../../chat/answer/answer-reader.ts";
import type { AnswerFormat } from "../../chat/answer/format.ts";
import { shownConversation } from "../../chat/answer/generic.ts";
import type { AnswerPart } from "../../chat/answer/sink.ts";
import { CallGrammar, type ForcedCall, type GrammarProblem } from "./call-grammar.ts";
import { runCall } from "./run-call.ts";
import type { ReadyTool } from "./tool-set.ts";

/** The part of a model that answers need. */
export interface AnsweringModel {
  readonly name: string;
  answerFormat(): Promise<AnswerFormat | undefined>;
  /** The prompt of a conversation, with these functions offered. */
  render(
    messages: readonly ChatMessage[],
    offered: readonly object[],
    signal: AbortSignal,
  ): Promise<RenderedPrompt>;
  generate(prompt: RenderedPrompt, options: GenerateOptions): Generation;
  readonly grammarProblem: GrammarProblem;
}

export interface ToolRequest {
  readonly tools: readonly ReadyTool[];
  /** Of the first step; afterwards the model decides. */
  readonly forced: ForcedCall;
  readonly maxSteps: number;
  readonly timeoutMs: number;
  readonly maxText: number;
  readonly onCall?: ((call: ToolCall) => ToolDecision | Promise<ToolDecision>) | undefined;
  readonly generate: GenerateOptions;
  readonly signal: AbortSignal;
  readonly emit: (event: AnswerEvent) => void;
}

export interface EndedAnswer {
  readonly answer: ToolAnswer;
  readonly messages: ChatMessage[];
}

export async function answerWithTools(
  model: AnsweringModel,
  asked: readonly ChatMessage[],
  request: ToolRequest,
): Promise<EndedAnswer> {
  const { tools, maxSteps, signal } = request;
  const own = await model.answerFormat();
  if (own === undefined) {
    throw new UsageError(
      `send(): ${model.name} cannot call tools: it has no chat template. Choose one with the chatTemplate option, or send without tools`,
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
    const start = promptEnd(prompt.text, format);
    const held = await grammar.at(start, forced);
    const generate = { ...request.generate, ...(held && { grammar: held }) };
    const said = await readStep(model, { prompt, format, start, step }, { ...request, generate });
    steps.push(said.result);
    const { stopReason } = said.result;
    const isLast = said.calls.length === 0 || !isComplete(stopReason) || step === maxSteps;
    if (said.calls.length > 0 || said.content !== "" || stopReason !== "aborted") {
      messages.push(stepMessage(said));
    }
    for (const call of said.calls) {
      const notRun = isLast ? notRunBecause(stopReason, maxSteps) : undefined;
      const outcome = notRun ? { call: call.asCall(), ...notRun } : await take(call, request);
      request.emit({ kind: "outcome", outcome });
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
    return { answer: { text, reasoning, calls, stopReason: reason, toolFormat, steps }, messages };
  }
}

type NotRun = Pick<ToolOutcome, "status" | "text">;

/** Whether the model had said what it wanted to. */
const isComplete = (reason: StopReason): boolean => reason === "end" || reason === "stop";

function notRunBecause(reason: StopReason, maxSteps: number): NotRun {
  if (isComplete(reason)) {
    return { status: "steps", text: `not run: the limit of ${maxSteps} steps was reached` };
  }
  return { status: "stopped", text: "not run: the answer was cut off" };
}

interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly WrittenCall[];
  readonly result: GenerationResult;
}

/** What a step begins with. */
interface Step {
  readonly prompt: RenderedPrompt;
  readonly format: AnswerFormat;
  readonly start: AnswerStart;
  readonly step: number;
}

/** One generation, told apart into reasoning, text and calls as it comes. */
async function readStep(
  model: AnsweringModel,
  { prompt, format, start, step }: Step,
  { tools, generate, signal, emit }: ToolRequest,
): Promise<Said> {
  const reader = new AnswerReader({
    format,
    tools: tools.map(({ name, schema }) => ({ name, parameters: schema })),
    start,
  });
  let content = "";
  let reasoning = "";
  const calls: WrittenCall[] = [];
  const read = (parts: readonly AnswerPart[]): void => {
    for (const part of parts) {
      if (part.kind === "content") content += part.text;
      else if (part.kind === "reasoning") reasoning += part.text;
      if (part.kind === "content" || part.kind === "reasoning") emit(part);
      else if (part.kind === "call") {
        const call = new WrittenCall(part.name, part.id || callId(step, part.index), step);
        calls.push(call);
        emit({ kind: "call", id: call.id, name: call.name });
      } else if (part.kind === "arguments") {
        const call = calls[part.index]!;
        call.text += part.text;
        emit({ kind: "arguments", id: call.id, text: part.text });
      }
      // An id that comes late is left out: the one that was given first stays.
    }
  };
  // Marks around calls are often control tokens.
  const generation = model.generate(prompt, { ...generate, special: true, signal });
  for await (const piece of generation) read(reader.push(piece));
  read(reader.end());
  return { content, reasoning, calls, result: await generation.result };
}

/** Nine letters and digits, as Mistral's templates want them. */
function callId(step: number, index: number): string {
  return `call${String(step * 256 + index).padStart(5, "0")}`;
}

/** A call as the model wrote it. */
class WrittenCall {
  readonly name: string;
  readonly id: string;
  readonly step: number;
  /** The arguments: JSON, if the model wrote what it should. */
  text = "";

  constructor(name: string, id: string, step: number) {
    this.name = name;
    this.id = id;
    this.step = step;
  }

  /** undefined: it is no JSON. */
  parsed(): { value: unknown } | undefined {
    try {
      return { value: this.text.trim() === "" ? {} : (JSON.parse(this.text) as unknown) };
    } catch {
      return undefined;
    }
  }

  asCall(args: unknown = this.parsed()?.value ?? {}): ToolCall {
    return { id: this.id, name: this.name, arguments: args, step: this.step };
  }
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

/** Templates expect arguments as an object. */
function stepMessage({ content, reasoning, calls }: Said): ChatMessage {
  const tool_calls = calls.map((call) => ({
    id: call.id,
    type: "function" as const,
    function: { name: call.name, arguments: call.parsed()?.value ?? {} },
  }));
  return {
    role: "assistant",
    content,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(tool_calls.length > 0 && { tool_calls }),
  };
}

function toolMessage({ call, text }: ToolOutcome): ChatMessage {
  return { role: "tool", content: text, tool_call_id: call.id, name: call.name };
}

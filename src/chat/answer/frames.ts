// Answers that are several messages, each with a header: GPT-OSS ("harmony"), Muse (`to=` in the header) and Functionary 3.2.

import type { FrameStyle } from "../../api/answer-format.ts";
import { type CallContext, NoCall } from "./calls/call-reader.ts";
import { readCalls } from "./calls/calls.ts";
import { copyJson, NotJson } from "./json-value.ts";
import { accept, has, type Reading, upTo } from "./source.ts";

export interface FrameContext {
  /** For calls; without tools there are none. */
  readonly calls: CallContext;
  readonly hasTools: boolean;
  /** Reasoning, as it is to be given. */
  reasoning(text: string): void;
  /** The header of reasoning and its end, where reasoning stays in the text. */
  mark(text: string): void;
  /** The part that the prompt ends in, if it ends within a message. */
  readonly inside: "reasoning" | "content" | undefined;
}

export const frameReaders: Readonly<Record<FrameStyle, (context: FrameContext) => Reading<void>>> =
  { harmony: readHarmony, "to-header": readToHeader, functionary: readFunctionary };

/** `<|channel|>analysis<|message|>...<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{...}<|call|>` */
function* readHarmony(context: FrameContext): Reading<void> {
  const { source, sink } = context.calls;
  const ends = ["<|end|>", "<|return|>", "<|call|>", "<|start|>"];
  let inside = context.inside;
  while (!source.isDone) {
    let header = "";
    if (inside === undefined) {
      const stop = yield* upTo(source, ["<|message|>", "<|start|>assistant"], (text) => {
        header += text;
      });
      if (stop === undefined) return;
      yield* accept(source, stop);
      if (stop !== "<|message|>") continue;
    }
    // Of several channels in a header the last counts; "to=assistant" is a model that talks to itself.
    const [, channel] = /^\s*(\w+)/.exec(header.split("<|channel|>").slice(1).at(-1) ?? "") ?? [];
    const to = /\bto=([\w.-]+)/.exec(header)?.[1];
    const isReasoning = inside === "reasoning" || (inside === undefined && channel === "analysis");
    if (to?.startsWith("functions.") && context.hasTools) {
      yield* readBody(context, to.slice("functions.".length));
    } else if (to !== undefined && to !== "assistant" && to !== "user") {
      yield* upTo(source, ends, () => {}); // a built-in tool that was not offered
    } else if (isReasoning) {
      if (inside === undefined) context.mark(`<|channel|>analysis<|message|>`);
      yield* readReasoning(context, ends);
    } else yield* upTo(source, ends, (text) => sink.content(text));
    inside = undefined;
    for (const end of ends.slice(0, 3)) if (yield* accept(source, end)) break;
    yield* accept(source, "<|start|>assistant");
    yield* has(source, 1);
  }
}

function* readReasoning(context: FrameContext, ends: readonly string[]): Reading<void> {
  const { source, sink } = context.calls;
  sink.isReasoning = true;
  const end = yield* upTo(source, ends, context.reasoning);
  sink.isReasoning = false;
  if (end !== undefined) context.mark(end);
}

function* readBody({ calls: { source, sink } }: FrameContext, name: string): Reading<void> {
  sink.call(name, "");
  try {
    if (yield* copyJson(source, (text) => sink.arguments(text))) sink.endCall();
  } catch (error) {
    if (!(error instanceof NotJson)) throw error;
    yield* upTo(source, ["<|end|>", "<|call|>", "<|return|>"], (text) => sink.arguments(text));
  }
}

/** ` to=self<|message|>reasoning<|eom|><|start|>assistant to=user<|message|>text<|eot|>`; a call's body is in tags. */
function* readToHeader(context: FrameContext): Reading<void> {
  const { source, sink, format } = context.calls;
  const ends = ["<|eom|>", "<|eot|>", "<|start|>"];
  while (!source.isDone) {
    let header = "";
    const stop = yield* upTo(source, ["<|message|>"], (text) => {
      header += text;
    });
    if (stop === undefined) return;
    yield* accept(source, stop);
    const to = /to=(\S+)/.exec(header)?.[1] ?? "user";
    if (to === "self") {
      context.mark(" to=self<|message|>");
      yield* readReasoning(context, ends);
    } else if (to === "user" || !context.hasTools || format.call.start === "") {
      yield* upTo(source, ends, (text) => sink.content(text));
    } else {
      sink.content(yield* readCalls(context.calls));
      yield* upTo(source, ends, () => {});
    }
    for (const end of ends.slice(0, 2)) if (yield* accept(source, end)) break;
    yield* accept(source, "<|start|>assistant");
    yield* has(source, 1);
  }
}

/** `all\ntext` or `f\n{...}`, further ones after `>>>`. */
function* readFunctionary(context: FrameContext): Reading<void> {
  const { source, sink, tools } = context.calls;
  let isInside = context.inside === "content";
  while (!source.isDone) {
    let to = "all";
    if (!isInside) {
      to = "";
      const stop = yield* upTo(source, ["\n"], (text) => {
        to += text;
      });
      if (stop !== undefined) yield* accept(source, "\n");
    }
    isInside = false;
    if (to === "all") yield* upTo(source, [">>>"], (text) => sink.content(text));
    else if (tools.some((tool) => tool.name === to)) {
      sink.call(to, "");
      try {
        if (yield* copyJson(source, (text) => sink.arguments(text))) sink.endCall();
      } catch (error) {
        if (!(error instanceof NotJson || error instanceof NoCall)) throw error;
        yield* upTo(source, [">>>"], (text) => sink.arguments(text));
      }
      yield* upTo(source, [">>>"], () => {});
    } else {
      sink.content(source.isDone ? to : `${to}\n`);
      yield* upTo(source, [">>>"], (text) => sink.content(text));
    }
    yield* accept(source, ">>>");
  }
}

// A chat template: the Jinja program that a model file brings, which writes a conversation as the text that the model was
// trained on. Rendering is @huggingface/jinja's; jinja-gaps.ts makes up for what it lacks, and budget.ts ends what takes too
// long or too much.
//
// A template may refuse a conversation (raise_exception): that is a UsageError with its own words. One refusal is answered
// by a second try: where the system role is not supported (Gemma 2), the system message goes in front of the first user
// message, as it does in llama.cpp.

import { Template } from "@huggingface/jinja";
import type { Check } from "../base/check.ts";
import { LanternError, ModelError, messageOf, UsageError } from "../base/errors.ts";
import { type Budget, BudgetedProgram } from "./budget.ts";
import { closeGaps, FORMAT, formatPositional, RAISE, STRFTIME } from "./jinja-gaps.ts";
import { strftime } from "./strftime.ts";

export { builtInTemplates } from "./built-in.ts";

/** A message as templates see it: more fields than role and content (tool_calls, ...) are passed on. */
export interface TemplateMessage {
  readonly role: string;
  readonly content: string;
}

export interface RenderOptions {
  /** End with the beginning of the assistant's answer (default false). */
  addGenerationPrompt?: boolean;
  /** Functions that the model may call, as JSON schemas. */
  tools?: readonly unknown[];
  /** Further variables, such as enable_thinking (default true) and date_string (default: today). */
  extra?: Readonly<Record<string, unknown>>;
  /** The time that a template writes into the prompt (default: now). */
  now?: Date;
  /** Called now and then; throws where the rendering should stop. */
  check?: Check;
}

/** Templates of real models have up to 50,000 characters. */
const LONGEST_SOURCE = 1_000_000;

/** Thrown by a template through raise_exception. */
class Refusal extends Error {}

export class ChatTemplate {
  readonly source: string;
  readonly #program: BudgetedProgram;
  readonly #tokens: { bos: string; eos: string };

  constructor(source: string, tokens: { bos: string; eos: string }) {
    this.source = source;
    this.#tokens = tokens;
    if (source.length > LONGEST_SOURCE) {
      throw new ModelError(
        `chat template: it has ${source.length} characters, at most ${LONGEST_SOURCE} are read. Choose another with the chatTemplate option`,
      );
    }
    try {
      const { parsed } = new Template(source);
      closeGaps(parsed);
      this.#program = new BudgetedProgram(parsed);
    } catch (cause) {
      throw new ModelError(`chat template: it cannot be parsed: ${messageOf(cause)}`, { cause });
    }
  }

  render(messages: readonly TemplateMessage[], options: RenderOptions = {}): string {
    try {
      return this.#run(messages, options);
    } catch (cause) {
      const folded = cause instanceof Refusal ? foldSystem(messages) : undefined;
      if (folded === undefined) throw explain(cause);
      try {
        return this.#run(folded, options);
      } catch {
        throw explain(cause); // the first refusal is the one that fits what was asked
      }
    }
  }

  #run(messages: readonly TemplateMessage[], options: RenderOptions): string {
    const { addGenerationPrompt = false, tools, extra, now = new Date(), check } = options;
    const variables: Record<string, unknown> = {
      messages,
      tools: tools && tools.length > 0 ? tools : undefined, // none and [] mean something else to some templates
      add_generation_prompt: addGenerationPrompt,
      bos_token: this.#tokens.bos,
      eos_token: this.#tokens.eos,
      enable_thinking: true, // templates that ask take no answer for "no"
      date_string: strftime(now, "%d %b %Y"),
      ...this.#firefunction(tools, now),
      ...extra,
    };
    const raise = (message: unknown) => {
      throw new Refusal(String(message));
    };
    const strftimeNow = (format: unknown) => strftime(now, String(format));
    const functions = (budget: Budget) => ({
      raise_exception: raise, // templates ask whether they are defined
      strftime_now: strftimeNow,
      [RAISE]: raise,
      [STRFTIME]: strftimeNow,
      [FORMAT]: (text: unknown, ...values: unknown[]) => {
        const longest = values.reduce<number>((most, one) => Math.max(most, String(one).length), 0);
        const fields = String(text).length / 2;
        budget.allow(fields * longest);
        return formatPositional(String(text), values);
      },
    });
    return this.#program.render(variables, functions, check);
  }

  /** Firefunction's template wants two variables that no other one knows, and fails without them. */
  #firefunction(tools: readonly unknown[] | undefined, now: Date): Record<string, string> {
    if (!/\bdatetime\b/.test(this.source)) return {};
    const datetime = strftime(now, "%b %d %Y %H:%M:%S");
    return { datetime, functions: JSON.stringify(tools ?? [], undefined, 2) };
  }
}

/** The conversation with its system message in front of the first user message; undefined where there is none of either. */
function foldSystem(messages: readonly TemplateMessage[]): TemplateMessage[] | undefined {
  const [system, user, ...rest] = messages;
  if (system?.role !== "system" || user?.role !== "user") return undefined;
  if (typeof system.content !== "string" || typeof user.content !== "string") return undefined;
  return [{ ...user, content: `${system.content}\n\n${user.content}` }, ...rest];
}

function explain(cause: unknown): LanternError {
  if (cause instanceof LanternError) return cause;
  const message = messageOf(cause);
  if (cause instanceof Refusal) {
    return new UsageError(`chat template: it refuses this conversation: ${message}`, { cause });
  }
  return new ModelError(`chat template: rendering failed: ${message}`, { cause });
}

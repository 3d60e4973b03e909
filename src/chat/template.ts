// A chat template: the Jinja program in a model file that turns a conversation into the text format the model was
// trained on. @huggingface/jinja renders it; jinja-gaps.ts adds what that library lacks, and budget.ts stops templates
// that take too much time or memory.
//
// A template may refuse a conversation (raise_exception), which becomes a UsageError with the template's message. One
// kind of refusal is retried: if the system role is not supported (Gemma 2), the system message is put in front of the
// first user message, as in llama.cpp. The same happens where a template leaves system messages out (Phi 3 mini).

import { parse, tokenize } from "@huggingface/jinja";
import type { Check } from "../base/check.ts";
import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import { BudgetedProgram } from "./budget.ts";
import { closeGaps, closeTestGaps, RAISE, STRFTIME } from "./jinja-gaps.ts";
import { strftime } from "./strftime.ts";
import { type Token, tagsOf, tagsOfNodes } from "./tags.ts";
import { PlacedRefusal, parseError, Refusal, tooLong } from "./template-errors.ts";

export { builtInTemplates } from "./built-in.ts";

/** A message as templates see it: fields besides role and content (tool_calls, ...) are passed on. */
export interface TemplateMessage {
  readonly role: string;
  readonly content: string;
}

export interface RenderOptions {
  /** End with the start of the assistant's turn (default false). */
  addGenerationPrompt?: boolean;
  /** Functions that the model may call, as JSON schemas. */
  tools?: readonly unknown[];
  /** More variables, such as enable_thinking (default true) and date_string (default: today). */
  extra?: Readonly<Record<string, unknown>>;
  /** The time that a template may write into the prompt (default: now). */
  now?: Date;
  /** Called from time to time; throws when the rendering should stop. */
  check?: Check;
}

/** Templates of real models have up to 50,000 characters. */
const LONGEST_SOURCE = 1_000_000;

export class ChatTemplate {
  readonly source: string;
  readonly #program: BudgetedProgram;
  readonly #tokens: { bos: string; eos: string };
  #hidesSystem: boolean | undefined;

  constructor(source: string, tokens: { bos: string; eos: string }) {
    this.source = source;
    this.#tokens = tokens;
    if (source.length > LONGEST_SOURCE) throw tooLong(source.length, LONGEST_SOURCE);
    const tags = tagsOf(source);
    let read: Token[] | undefined;
    try {
      const tokens: Token[] = tokenize(source, { lstrip_blocks: true, trim_blocks: true });
      read = tokens;
      closeTestGaps(tokens);
      const parsed = parse(tokens as Parameters<typeof parse>[0]);
      const places = tagsOfNodes(parsed, tokens, tags);
      closeGaps(parsed);
      this.#program = new BudgetedProgram(parsed, places);
    } catch (cause) {
      throw parseError(cause, tags, read, (all) => parse(all as Parameters<typeof parse>[0]));
    }
  }

  /** The prompt, with marks of the parts that come from the template and of the words of messages and options. */
  render(messages: readonly TemplateMessage[], options: RenderOptions = {}): RenderedPrompt {
    const folds = messages[0]?.role === "system" && this.#leavesSystemOut();
    try {
      return this.#run((folds ? foldSystem(messages) : undefined) ?? messages, options);
    } catch (cause) {
      const folded = cause instanceof Refusal ? foldSystem(messages) : undefined;
      if (folded === undefined) throw explain(cause);
      try {
        return this.#run(folded, options);
      } catch {
        throw explain(cause); // the first refusal is about the messages as they were given
      }
    }
  }

  /** Whether the template leaves out a system message, found out once. */
  #leavesSystemOut(): boolean {
    if (this.#hidesSystem === undefined) {
      const word = "zqSystem";
      const said = [
        { role: "system", content: word },
        { role: "user", content: "zqQuestion" },
      ];
      try {
        const { text } = this.#run(said, { addGenerationPrompt: true });
        this.#hidesSystem = text.includes("zqQuestion") && !text.includes(word);
      } catch {
        this.#hidesSystem = false; // it refuses: render() sees to that
      }
    }
    return this.#hidesSystem;
  }

  #run(messages: readonly TemplateMessage[], options: RenderOptions): RenderedPrompt {
    const { addGenerationPrompt = false, tools, extra, now = new Date(), check } = options;
    const variables: Record<string, unknown> = {
      messages,
      tools: tools && tools.length > 0 ? tools : undefined, // some templates treat [] unlike none
      add_generation_prompt: addGenerationPrompt,
      enable_thinking: true, // an undefined variable counts as "no" in templates that test it
      ...this.#firefunction(tools, now),
      ...extra,
    };
    const own = {
      bos_token: this.#tokens.bos,
      eos_token: this.#tokens.eos,
      date_string: strftime(now, "%d %b %Y"),
    };
    const raise = (message: unknown) => {
      throw new Refusal(String(message));
    };
    const strftimeNow = (format: unknown) => strftime(now, String(format));
    const functions = {
      raise_exception: raise, // templates test whether these are defined
      strftime_now: strftimeNow,
      [RAISE]: raise,
      [STRFTIME]: strftimeNow,
    };
    return this.#program.render(variables, own, functions, check);
  }

  /** Firefunction's template needs two variables that no other template uses. */
  #firefunction(tools: readonly unknown[] | undefined, now: Date): Record<string, string> {
    if (!/\bdatetime\b/.test(this.source)) return {};
    const datetime = strftime(now, "%b %d %Y %H:%M:%S");
    return { datetime, functions: JSON.stringify(tools ?? [], undefined, 2) };
  }
}

/** Moves the system message in front of the first user message; undefined if one of them is missing. */
function foldSystem(messages: readonly TemplateMessage[]): TemplateMessage[] | undefined {
  const [system, user, ...rest] = messages;
  if (system?.role !== "system" || user?.role !== "user") return undefined;
  if (typeof system.content !== "string" || typeof user.content !== "string") return undefined;
  return [{ ...user, content: `${system.content}\n${user.content}` }, ...rest];
}

function explain(cause: unknown): unknown {
  return cause instanceof PlacedRefusal ? cause.error : cause;
}

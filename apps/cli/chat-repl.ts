// The conversation of `lantern chat`: reads messages, answers them, and runs slash commands. Works the same on a terminal
// (editor/input.ts) and with lines from a pipe (without prompts; it ends with the input).
//
// Ctrl-C stops the answer; a second time during an answer, or twice at an empty prompt, it exits.

import { nearest } from "../../src/base/nearest.ts";
import {
  type Chat,
  type ChatMessage,
  ContextError,
  LanternError,
  type ModelInfo,
  type StopReason,
  type Timings,
  UsageError,
} from "../../src/index.ts";
import { inFlags } from "../../src/options/names.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";
import type { ChatStore } from "./chat-store.ts";
import { type ChatTools, showText } from "./chat-tools.ts";
import type { CliContext } from "./command.ts";
import { shiftNote } from "./context-flags.ts";
import { type ChatInput, EditedInput, LineInput } from "./editor/input.ts";
import type { Message } from "./editor/message.ts";
import { Recall } from "./editor/recall.ts";
import { endNotes } from "./end-notes.ts";
import type { IdleWork } from "./idle-work.ts";
import { interruptExitCode } from "./interrupt.ts";
import { type LimitFlags, limitHint, limitText, timingsWithLimits } from "./machine-limits.ts";
import { perSecond, plural } from "./text.ts";

interface ReplCommand {
  name: string;
  argument: string;
  help: string;
  run(repl: ChatRepl, argument: string): Promise<void> | void;
}

const replCommands: readonly ReplCommand[] = [
  {
    name: "/undo",
    argument: "",
    help: "remove the last question and its answer",
    run: (repl) => repl.undo(),
  },
  {
    name: "/regen",
    argument: "",
    help: "answer the last question again",
    run: (repl) => repl.regenerate(),
  },
  {
    name: "/system",
    argument: "TEXT",
    help: "set the system message, which says how the model should behave; without TEXT: remove it",
    run: (repl, text) => repl.setSystem(text),
  },
  {
    name: "/save",
    argument: "FILE",
    help: "write the conversation to FILE (.json or .md)",
    run: (repl, file) => repl.save(file),
  },
  {
    name: "/tools",
    argument: "",
    help: "show the tools that the model may call",
    run: (repl) => repl.showTools(),
  },
  { name: "/help", argument: "", help: "show these commands", run: (repl) => repl.help() },
  { name: "/exit", argument: "", help: "leave (also: Ctrl-D)", run: (repl) => repl.leave() },
];

const keysHelp = `Alt+Enter, Shift+Enter (where the terminal tells it from Enter) or Ctrl-J begins a new line; pasted lines are one message.
Or end a line with \\, or write """ before the message and """ behind it.
Up and Down: lines, then what was typed before. Ctrl-R searches in it. Ctrl-C clears the line, and stops an answer.
`;

/** For Tab: the common prefix of all commands that begin like this. */
function commandThatBegins(text: string): string | undefined {
  if (!/^\/\w*$/.test(text)) return undefined;
  const names = replCommands.map(({ name }) => name).filter((name) => name.startsWith(text));
  return names.length === 1 ? `${names[0]} ` : undefined;
}

export class ChatRepl {
  readonly #chat: Chat;
  readonly #info: ModelInfo;
  #limits: LimitFlags;
  readonly #context: CliContext;
  /** Work for the time in which the user thinks. */
  readonly #idle: IdleWork;
  readonly #terminal: Terminal;
  #leaving = false;
  #store: ChatStore | undefined;
  /** The last reason that was shown. */
  #computedAgain: string | undefined;
  #exitCode = 0;
  #tools: ChatTools | undefined;
  #input: ChatInput | undefined;
  /** Whether typed texts are kept, for Up in later chats. */
  #keepsTyped = false;
  #explain: ((timings: Timings) => Promise<string>) | undefined;

  constructor(
    chat: Chat,
    info: ModelInfo,
    limits: LimitFlags,
    context: CliContext,
    idle: IdleWork,
  ) {
    this.#idle = idle;
    this.#chat = chat;
    this.#info = info;
    this.#limits = limits;
    this.#context = context;
    this.#terminal = context.terminal;
  }

  /** Keeps the conversation for --resume, after every change. */
  keepIn(store: ChatStore): void {
    this.#store = store;
  }

  /** Keeps typed texts, for later chats. */
  keepTyped(): void {
    this.#keepsTyped = true;
  }

  /** Lets the model call these. */
  useTools(tools: ChatTools): void {
    this.#tools = tools;
  }

  /** Says something of every answer (--explain). */
  explainWith(explain: (timings: Timings) => Promise<string>): void {
    this.#explain = explain;
  }

  /** Shows the earlier messages, so that the user knows where the chat continues. */
  showEarlier(messages: readonly ChatMessage[]): void {
    if (!this.#terminal.inIsTerminal) return;
    for (const { role, content } of messages.slice(-2)) {
      const mark = role === "user" ? "> " : "";
      this.#note(`${mark}${content.trim()}`);
    }
  }

  async #keep(): Promise<void> {
    const problem = await this.#store?.save(this.#chat.messages);
    if (problem !== undefined) this.#complain(inFlags(problem));
  }

  /** Runs until the user exits; returns the exit code. */
  async run(firstMessage: string | undefined): Promise<number> {
    const input = await this.#openInput();
    this.#input = input;
    try {
      if (this.#terminal.inIsTerminal) {
        this.#note(
          `${this.#info.name}. /help shows commands and keys. Ctrl-C stops an answer; press it twice to leave.`,
        );
        if (this.#tools) this.#note(this.#tools.summary());
      }
      if (firstMessage !== undefined) {
        await this.#answer(firstMessage);
        await this.#keep();
      }
      await this.#loop(input);
    } finally {
      input.close();
      await this.#idle.pause();
    }
    return this.#exitCode;
  }

  async #openInput(): Promise<ChatInput> {
    const color = this.#context.color().out;
    const raw = this.#terminal.raw?.();
    if (raw === undefined) {
      return new LineInput(this.#terminal.lines(), color, this.#terminal);
    }
    return new EditedInput(raw, {
      recall: new Recall((await this.#terminal.typed?.read()) ?? []),
      onSent: (text) => this.#keepText(text),
      complete: commandThatBegins,
      color,
      env: (name) => this.#terminal.env(name),
    });
  }

  /** Never fails: if a text cannot be kept, a note says so once. */
  async #keepText(text: string): Promise<void> {
    if (!this.#keepsTyped) return;
    try {
      await this.#terminal.typed?.add(text);
    } catch (error) {
      if (!(error instanceof LanternError)) throw error;
      this.#keepsTyped = false;
      this.#complain(`What you type is not kept for later chats: ${error.message}`);
    }
  }

  async #loop(input: ChatInput): Promise<void> {
    let interrupts = 0;
    while (!this.#leaving) {
      const message = await input.next();
      if (message === undefined) return;
      if ("kind" in message) {
        interrupts = message.cleared ? 1 : interrupts + 1;
        if (interrupts === 2) {
          this.#exitCode = interruptExitCode;
          return;
        }
        this.#note("Press Ctrl-C again to leave, or type /exit.");
        continue;
      }
      interrupts = 0;
      await this.#idle.pause();
      if (message.text.trim() !== "") await this.#take(message);
      this.#idle.resume();
    }
  }

  async #take(message: Message): Promise<void> {
    await this.#do(message);
    await this.#keep();
  }

  async #do({ text, isQuoted }: Message): Promise<void> {
    const [, name, argument] = /^(\/\S*)\s*(.*)$/s.exec(text) ?? [];
    const command = replCommands.find((candidate) => candidate.name === name);
    // A text of several lines is a command only if it begins with one: otherwise it is code with a comment, or a path.
    const isText = isQuoted || (command === undefined && text.includes("\n"));
    if (name === undefined || argument === undefined || isText) {
      await this.#answer(text);
      return;
    }
    if (!command) {
      const names = replCommands.map((candidate) => candidate.name);
      const [near] = nearest(name, names, 1);
      this.#complain(
        `Unknown command: ${name}.${near ? ` Did you mean ${near}?` : ""} /help shows all commands.`,
      );
      return;
    }
    try {
      await command.run(this, argument.trim());
    } catch (error) {
      if (!(error instanceof LanternError)) throw error;
      this.#complain(inFlags(error.message));
    }
  }

  undo(): void {
    if (this.#chat.undo()) this.#note("The last question and its answer were removed.");
    else this.#complain("There is nothing to undo yet.");
  }

  async regenerate(): Promise<void> {
    if (this.#chat.messages.some((message) => message.role === "user")) {
      await this.#answer(undefined);
    } else {
      this.#complain("There is no question to answer again yet.");
    }
  }

  setSystem(text: string): void {
    this.#chat.setSystem(text);
    this.#note(text === "" ? "The system message was removed." : "The system message is set.");
  }

  async save(file: string): Promise<void> {
    if (!/\.(json|md)$/i.test(file)) {
      this.#complain(
        `/save: got "${file}", expected a file name that ends in .json or .md: /save talk.md`,
      );
      return;
    }
    const { messages } = this.#chat;
    const text = /\.json$/i.test(file)
      ? conversationJson(messages)
      : conversationMarkdown(messages);
    await this.#terminal.writeText(file, text);
    this.#note(`Saved ${plural(messages.length, "message")} to ${file}.`);
  }

  help(): void {
    const lines = replCommands.map(({ name, argument, help }) => {
      return `${`${name} ${argument}`.padEnd(14)} ${help}\n`;
    });
    this.#terminal.err(`${lines.join("")}\n${keysHelp}`);
  }

  showTools(): void {
    this.#note(this.#tools?.summary() ?? "There are no tools. --tools FILE or --mcp adds some.");
  }

  leave(): void {
    this.#leaving = true;
  }

  /** @param text undefined: the last message is answered again. */
  async #answer(text: string | undefined): Promise<void> {
    const controller = new AbortController();
    const stopListening = this.#terminal.onInterrupt(() => {
      controller.abort();
    });
    try {
      const { stopReason, timings } = await this.#stream(text, controller);
      stopListening();
      this.#terminal.out("\n");
      const note =
        stopReason === "steps"
          ? "The model wanted to call more tools. --tool-steps allows more steps."
          : endNotes[stopReason]?.(this.#info);
      for (const each of [shiftNote(timings, this.#info), note]) if (each) this.#note(each);
      if (this.#explain) this.#context.asked(await this.#explain(timings));
      else this.#noteComputedAgain(timings);
      await this.#noteSpeed(timings, stopReason === "aborted");
    } catch (error) {
      // A message that does not fit, or that the template refuses, must not lose the conversation.
      if (!(error instanceof ContextError || error instanceof UsageError)) throw error;
      const advice = error instanceof ContextError ? " (/undo makes room)" : "";
      this.#complain(`${inFlags(error.message)}${advice}`);
    } finally {
      stopListening();
    }
  }

  /** Writes the answer as it comes; returns how it ended. */
  async #stream(
    text: string | undefined,
    controller: AbortController,
  ): Promise<{ stopReason: StopReason | "steps"; timings: Timings }> {
    const { signal } = controller;
    const tools = this.#tools;
    const options = tools && { ...tools.options(this.#input!, () => controller.abort()), signal };
    const chat = this.#chat;
    const generation = options
      ? text === undefined
        ? chat.regenerate(options)
        : chat.send(text, options)
      : text === undefined
        ? chat.regenerate({ signal })
        : chat.send(text, { signal });
    if (tools) await tools.show(generation.events());
    else {
      for await (const event of generation.events()) showText(event, this.#context);
    }
    return await generation.result;
  }

  /** A template that changes history does so in every message: one note is enough. */
  #noteComputedAgain({ computedAgain }: Timings): void {
    if (!computedAgain || this.#computedAgain === computedAgain.reason) return;
    this.#computedAgain = computedAgain.reason;
    this.#note(computedAgain.text);
  }

  async #noteSpeed(measured: Timings, isStopped: boolean): Promise<void> {
    const timings = await timingsWithLimits(
      measured,
      this.#info,
      this.#limits,
      this.#context,
      isStopped,
    );
    // Once: a failed measurement is not repeated after every answer.
    if (!isStopped && !timings.limits) this.#limits = { limit: false };
    const { generatedTokens, generatedMs, limits } = timings;
    const rate = perSecond(generatedTokens, generatedMs).toFixed(1);
    const limit = limits?.generation ? `, ${limitText(limits.generation, timings)}` : "";
    this.#note(`${plural(generatedTokens, "token")}, ${rate} tokens/s${limit}`);
    const hint = limitHint(timings, this.#info, this.#limits, this.#context);
    if (hint) this.#note(hint);
  }

  #note(text: string): void {
    this.#terminal.err(`${this.#context.color().err.dim(text)}\n`);
  }

  #complain(text: string): void {
    this.#terminal.err(`${this.#context.color().err.red(text)}\n`);
  }
}

function conversationJson(messages: readonly ChatMessage[]): string {
  return `${JSON.stringify({ messages }, undefined, 2)}\n`;
}

function conversationMarkdown(messages: readonly ChatMessage[]): string {
  return messages.map(({ role, content }) => `## ${role}\n\n${content.trim()}\n`).join("\n");
}

// lantern chat: a conversation in the terminal. Flags and set-up are here; the conversation itself is ../chat-repl.ts.

import { catalog } from "../../../src/catalog/catalog.ts";
import { forgetStoredConversations, UsageError } from "../../../src/index.ts";
import { promptCache } from "../cache-explained.ts";
import { ChatRepl } from "../chat-repl.ts";
import { ChatStore, conversationOf, findChat, newChatId } from "../chat-store.ts";
import { addToolFlags, openChatTools, type ToolFlags, toolFormatNote } from "../chat-tools.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { addTuneFlag, idleTune, type TuneFlag } from "../first-tune.ts";
import { effortHelp, templateHelp } from "../flag-help.ts";
import { effortFlag } from "../flag-values.ts";
import {
  addModelFlags,
  addSamplingFlags,
  addStateCacheFlags,
  generateOptions,
  type ModelFlags,
  type SamplingFlags,
} from "../flags.ts";
import { grammarOptions, warnOfGrammar } from "../grammar-flags.ts";
import { IdleWork } from "../idle-work.ts";
import { interruptible } from "../interrupt.ts";
import { checkGenerates, openModel } from "../load-model.ts";
import { addLimitFlag, idleMeasurement, type LimitFlags } from "../machine-limits.ts";
import { profileOption, profileText, takeProfile } from "../profile.ts";

interface ChatFlags extends ModelFlags, SamplingFlags, LimitFlags, TuneFlag, ToolFlags {
  system?: string;
  prompt?: string;
  resume?: string | true;
  /** false: --no-history. */
  history?: boolean;
  reasoningEffort?: string;
}

export const chatCommand: CommandBody = {
  examples: [
    "lantern chat -m tinyllama-chat",
    'lantern chat -m tinyllama-chat --system "You answer in one sentence." --temp 0',
    "lantern chat --resume",
    'lantern chat -m qwen3-0.6b --mcp "npx -y @modelcontextprotocol/server-filesystem ."',
  ],
  define(command, context) {
    addStateCacheFlags(addModelFlags(command, undefined, { warmup: true, usesGpu: true }), true)
      .option("--system <text>", "system message: how the model should behave")
      .option("-p, --prompt <text>", "first message to send")
      .option(
        "--resume [id]",
        "go on with the last chat, or with the one whose id begins like this; only what is new is computed (docs/use/cache.md)",
      )
      .option(
        "--no-history",
        "keep nothing of this chat on disk: neither it for --resume, nor what you type, nor what is computed (also: LANTERN_NO_HISTORY=1)",
      )
      .option("--reasoning-effort <level>", effortHelp, effortFlag)
      .option("--template <name>", `${templateHelp} (default: the model's own)`);
    addToolFlags(command);
    addTuneFlag(addLimitFlag(addSamplingFlags(command)))
      .addOption(profileOption())
      .action((flags: ChatFlags) => chat(flags, context))
      .addHelpText(
        "after",
        "\nEnter sends; Alt+Enter or Ctrl-J begins a new line, and pasted lines are one message. /help in the chat shows\ncommands and keys (docs/use/chat.md).",
      );
  },
};

async function chat(given: ChatFlags, context: CliContext): Promise<void> {
  const { chats } = context.terminal;
  const earlier = given.resume === undefined ? undefined : await findChat(chats, given.resume);
  const name = given.model ?? earlier?.model;
  if (name === undefined) {
    const names = catalog.filter((entry) => entry.chat).map((entry) => entry.name);
    throw new UsageError(
      `chat: got no model, expected -m with a file or a name. Chat models: ${names.join(", ")}. For example: lantern chat -m tinyllama-chat`,
    );
  }
  const flags: ChatFlags & { model: string } = { ...given, model: name };
  const grammar = await grammarOptions(flags, context.terminal);
  if (grammar.grammar !== undefined && (flags.tools ?? flags.mcp) !== undefined) {
    throw new UsageError(
      "chat: got tools and a grammar, expected one of them: calls have a grammar of their own. Drop --tools and --mcp, or the flag of the grammar",
    );
  }
  const tools = await toolsOf(flags, context); // errors are reported before a model is loaded
  await using _tools = { [Symbol.asyncDispose]: async () => await tools?.close() };
  const model = await openForChat(name, flags, context);
  try {
    const note = tools && (await toolFormatNote(name, model));
    if (note !== undefined) context.log.warn(`Note: ${note}\n`);
    const isPrivate =
      flags.history === false || Boolean(context.terminal.env("LANTERN_NO_HISTORY"));
    const id = earlier?.id ?? newChatId(new Date(), Math.random());
    const own = { conversation: conversationOf(id), cacheDisk: !isPrivate };
    const options = { ...generateOptions(flags), ...grammar, ...own };
    await warnOfGrammar(model, grammar, context.log);
    const system = flags.system === undefined ? {} : { system: flags.system };
    const messages = earlier === undefined ? {} : { messages: earlier.messages };
    const variables = effortVariables(flags.reasoningEffort);
    const conversation = model.chat({ ...options, ...messages, ...system, ...variables });
    // Without messages, because the user is typing. Input from a pipe leaves no idle times.
    const chores = context.terminal.errIsTerminal
      ? [...idleMeasurement(flags, context), ...idleTune(flags.model, flags, context)]
      : [];
    const idle = new IdleWork(chores);
    const repl = new ChatRepl(conversation, model.info, flags, context, idle);
    if (!isPrivate) repl.keepTyped();
    if (chats !== undefined && !isPrivate) {
      const { cacheFolder } = flags;
      const forget = (ids: readonly string[]) => forgetStoredConversations(ids, { cacheFolder });
      repl.keepIn(new ChatStore(chats, id, flags.model, forget));
    }
    if (tools !== undefined) repl.useTools(tools);
    if (flags.explain) {
      repl.explainWith(async (timings) => promptCache(timings, (await model.status()).cache));
    }
    if (earlier !== undefined) repl.showEarlier(earlier.messages);
    context.exitCode = await repl.run(flags.prompt);
    conversation.dispose();
    const profile = await takeProfile(model, flags, context);
    if (profile) context.asked(`\n${profileText(profile)}`);
  } finally {
    await model.dispose();
  }
}

function effortVariables(effort: string | undefined): { variables?: Record<string, unknown> } {
  if (effort === undefined) return {};
  const isNone = effort === "none";
  return { variables: isNone ? { enable_thinking: false } : { reasoning_effort: effort } };
}

async function toolsOf(flags: ChatFlags, context: CliContext): ReturnType<typeof openChatTools> {
  using interrupt = interruptible(context.terminal);
  return await openChatTools(flags, context, interrupt.signal);
}

async function openForChat(
  name: string,
  flags: ChatFlags,
  context: CliContext,
): ReturnType<typeof openModel> {
  using interrupt = interruptible(context.terminal);
  const model = await openModel(name, flags, context, interrupt.signal);
  if (model.info.generates && model.info.hasChatTemplate) return model;
  await model.dispose();
  checkGenerates("chat", name, model);
  throw new UsageError(
    `chat: ${name} has no chat template, so it can only continue a text. Use "lantern run -m ${name}", or choose a template with --template chatml, llama2, llama3, zephyr or command-r`,
  );
}

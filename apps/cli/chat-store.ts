// The store of `lantern chat`, so that --resume continues a conversation: the model and the messages. The computed state is kept by
// the model itself (docs/use/cache.md).

import { type ChatMessage, LanternError, UsageError } from "../../src/index.ts";
import type { ChatFiles } from "../../src/platform/node-chats.ts";

/** A chat as it is stored. */
export interface StoredChat {
  readonly id: string;
  readonly model: string;
  readonly messages: readonly ChatMessage[];
}

const version = 1;
/** The oldest are removed. */
const mostChats = 200;

/** The last chat, or the one whose id begins like this. */
export async function findChat(
  files: ChatFiles | undefined,
  asked: string | true,
): Promise<StoredChat> {
  if (files === undefined) throw new UsageError("--resume: chats are not kept here");
  const ids = await files.ids();
  const found = asked === true ? ids.slice(0, 1) : ids.filter((id) => id.startsWith(asked));
  const exact = found.find((id) => id === asked) ?? found[0];
  if (exact === undefined) {
    const none =
      ids.length === 0 ? `there is no chat in ${files.path} yet` : "there is no such chat";
    const known = ids.length === 0 ? "" : `. The last ones: ${ids.slice(0, 5).join(", ")}`;
    throw new UsageError(`--resume${asked === true ? "" : ` ${asked}`}: ${none}${known}`);
  }
  if (found.length > 1 && exact !== asked) {
    throw new UsageError(
      `--resume ${String(asked)}: got the beginning of ${found.length} ids, expected that of one: ${found.slice(0, 5).join(", ")}`,
    );
  }
  return readChat(exact, (await files.read(exact)) ?? "");
}

function readChat(id: string, text: string): StoredChat {
  try {
    const read = JSON.parse(text) as { version?: unknown; model?: unknown; messages?: unknown };
    const { model, messages } = read;
    const isChat =
      read.version === version &&
      typeof model === "string" &&
      Array.isArray(messages) &&
      messages.every((one) => typeof one?.role === "string" && typeof one?.content === "string");
    if (isChat) return { id, model: model as string, messages: messages as ChatMessage[] };
  } catch {
    // the same as any other text that is no chat
  }
  throw new UsageError(
    `--resume ${id}: its file is damaged, or another version of Lantern wrote it`,
  );
}

export class ChatStore {
  readonly id: string;
  readonly #files: ChatFiles;
  readonly #model: string;
  readonly #forget: (conversations: readonly string[]) => Promise<void>;
  #failed = false;

  /** `forget`: removes the stored state of chats that are removed. */
  constructor(
    files: ChatFiles,
    id: string,
    model: string,
    forget: (conversations: readonly string[]) => Promise<void> = async () => {},
  ) {
    this.#forget = forget;
    this.#files = files;
    this.id = id;
    this.#model = model;
  }

  /** Never fails: a chat continues if its text cannot be stored; the result is the reason, once. */
  async save(messages: readonly ChatMessage[]): Promise<string | undefined> {
    if (this.#failed || messages.every(({ role }) => role === "system")) return undefined;
    const chat = { version, model: this.#model, messages };
    try {
      await this.#files.write(this.id, `${JSON.stringify(chat, undefined, 2)}\n`);
      const oldest = (await this.#files.ids()).slice(mostChats);
      // Its file is removed last: a failed removal is tried again then.
      if (oldest.length > 0) await this.#forget(oldest.map(conversationOf));
      for (const old of oldest) await this.#files.remove(old);
      return undefined;
    } catch (error) {
      if (!(error instanceof LanternError)) throw error;
      this.#failed = true;
      return `This chat is not kept for --resume: ${error.message}`;
    }
  }
}

/** GenerateOptions.conversation of a chat. */
export const conversationOf = (id: string): string => `chat ${id}`;

/** Sorts by time: 20261116-195800-3f2a. */
export function newChatId(now: Date, random: number): string {
  const time = now
    .toISOString()
    .replace(/[-:]|\..*/g, "")
    .replace("T", "-");
  return `${time}-${Math.floor(random * 65536)
    .toString(16)
    .padStart(4, "0")}`;
}

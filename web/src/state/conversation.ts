// The open conversation: its tree of messages, its current message, and the answers that are being written. Used by
// Chat and Story. Everything is stored on the server; this is a view that follows it.
//
// An answer is followed through its run's events. If the connection breaks, it resumes after the last event; if the
// server was restarted meanwhile, the run is gone and its text is in the tree.

import { RequestError } from "../api.ts";
import type {
  CallEnd,
  Message,
  NewSession,
  OpenSession,
  RunEvent,
  RunView,
  Started,
} from "../api-types.ts";
import { client, lost, whenOnline } from "./connection.ts";
import { draftKey, moveDraft } from "./drafts.ts";
import { LiveAnswer, nothingSaid, saidIn } from "./live.ts";
import { whileLoading } from "./models.ts";
import { notify } from "./notices.ts";
import { forgetPlace } from "./places.ts";
import { refreshSessions } from "./sessions.ts";
import { Store } from "./store.ts";
import { type Tree, treeOf } from "./tree.ts";

export interface ConversationState {
  /** null: none is open; the first message creates one. */
  session: OpenSession | null;
  tree: Tree;
  run: RunView | null;
  /** Answers that are or were being written since this page was opened, by message. */
  live: ReadonlyMap<string, LiveAnswer>;
  loading: boolean;
  /** The session in the URL does not exist. */
  missing: boolean;
  /** The last answer of a story was empty and was removed. */
  silent: boolean;
}

const empty: ConversationState = {
  session: null,
  tree: new Map(),
  run: null,
  live: new Map(),
  loading: false,
  missing: false,
  silent: false,
};

export class Conversation {
  readonly store: Store<ConversationState> = new Store(empty);
  #following: AbortController | undefined;
  /** Number of pending requests; the list may be older meanwhile. */
  #asking = 0;
  /** Number of requests that have ended. */
  #asked = 0;

  /** Opens a session, or none. The previous one continues on the server. */
  async open(id: string | null): Promise<void> {
    if (id === (this.store.value.session?.id ?? null)) return;
    this.#following?.abort();
    this.store.set({ ...empty, loading: id !== null });
    if (id !== null) await this.#load(id);
  }

  async #load(id: string): Promise<void> {
    try {
      await whenOnline();
      const { session, messages } = await client.tree(id);
      const { live } = this.store.value;
      this.store.set({ ...empty, session, tree: treeOf(messages), live });
      if (session.run) void this.#follow(session.run);
    } catch (error) {
      if (error instanceof RequestError && error.offline) {
        await whenOnline();
        return await this.#load(id);
      }
      this.store.patch({ loading: false, missing: true });
      forgetPlace(id);
      if (!(error instanceof RequestError && error.status === 404)) throw error;
    }
  }

  /** Reads the tree again: after an answer, a restart, a change elsewhere. */
  async reload(): Promise<void> {
    const { session } = this.store.value;
    if (!session) return;
    const asked = this.#asked;
    const fresh = await client.tree(session.id);
    if (!this.#isOpen(session.id)) return;
    // What was asked while this was read, such as the result of a call, may be missing in it.
    if (asked !== this.#asked) return await this.reload();
    this.store.patch({ session: fresh.session, tree: treeOf(fresh.messages) });
    const { run } = fresh.session;
    if (run && this.store.value.run?.id !== run.id) void this.#follow(run);
  }

  /** Applies changes to the open session from the list: another tab or program may have made them. */
  async sync(listed: OpenSession | undefined, isAll: boolean): Promise<void> {
    const { session, run } = this.store.value;
    // An answer that is being followed is read again at its end.
    if (!session || run || this.#asking > 0) return;
    const isGone = !listed && isAll && session.messageCount > 0;
    const isSame =
      listed?.leaf === session.leaf &&
      listed.changedAt === session.changedAt &&
      listed.messageCount === session.messageCount &&
      listed.run === null;
    if (isSame || !(listed || isGone)) return;
    try {
      await this.reload();
    } catch (error) {
      if (!(error instanceof RequestError && error.status === 404)) return;
      this.store.set({ ...empty, missing: true });
      forgetPlace(session.id);
    }
  }

  /**
   * Starts answers and follows them; without an open session, in a new one, which is deleted if the request is
   * refused.
   */
  async begin(wanted: NewSession, ask: (session: string) => Promise<Started>): Promise<Started> {
    if (this.store.value.session) return await this.start(ask);
    const made = await client.createSession(wanted);
    this.store.set({ ...empty, session: made });
    try {
      const started = await this.start(ask);
      moveDraft(draftKey(wanted.mode, null), draftKey(wanted.mode, made.id));
      return started;
    } catch (error) {
      if (this.#isOpen(made.id)) this.store.set(empty);
      if (error instanceof RequestError && !error.offline) {
        await client.deleteSession(made.id).catch(() => {}); // without messages it is not listed
      }
      throw error;
    }
  }

  /** Starts answers and follows them. */
  async start(begin: (session: string) => Promise<Started>): Promise<Started> {
    const { session } = this.store.value;
    if (!session) throw new RequestError(0, null, "There is no conversation yet.");
    const started = await whileLoading(session.model, () => this.#ask(() => begin(session.id)));
    if (this.store.value.session?.id !== session.id) return started; // another one was opened
    this.#add(started.user ? [started.user, ...started.answers] : started.answers);
    const live = new Map(this.store.value.live);
    for (const answer of started.answers) live.set(answer.id, new LiveAnswer(saidIn(answer)));
    const leaf = started.answers[0]!.id;
    // The server uses the first line as the title; do the same until its title arrives.
    const title = session.title || (started.user?.content.trim().split("\n", 1)[0] ?? "");
    const open = { ...this.store.value.session!, leaf, title };
    this.store.patch({ live, session: open, silent: false });
    void this.#follow(started.run);
    return started;
  }

  #isOpen(id: string): boolean {
    return this.store.value.session?.id === id;
  }

  async stop(): Promise<void> {
    const { run } = this.store.value;
    if (run) await client.cancelRun(run.id);
  }

  async change(change: Parameters<typeof client.changeSession>[1]): Promise<void> {
    const { session } = this.store.value;
    if (!session) return;
    const changed = await this.#ask(() => client.changeSession(session.id, change));
    if (this.#isOpen(session.id)) this.store.patch({ session: changed, silent: false });
    if (change.title !== undefined) void refreshSessions();
  }

  /** Saves a message without an answer. */
  async keep(ask: Parameters<typeof client.keep>[1]): Promise<Message | undefined> {
    const { session } = this.store.value;
    if (!session) return undefined;
    const message = await this.#ask(() => client.keep(session.id, ask));
    this.#add([message]);
    const open = { ...this.store.value.session!, leaf: message.id };
    this.store.patch({ session: open, silent: false });
    return message;
  }

  /** Gives the result of a call; undefined: another conversation is open by now. */
  async endCall(session: string, end: CallEnd): Promise<Message | undefined> {
    const message = await this.#ask(() => client.endCall(session, end));
    if (!this.#isOpen(session)) return undefined;
    this.#add([message]);
    return message;
  }

  async #ask<T>(work: () => Promise<T>): Promise<T> {
    this.#asking++;
    try {
      return await work();
    } finally {
      this.#asking--;
      this.#asked++;
    }
  }

  #add(messages: readonly Message[]): void {
    const added = messages.map((message): [string, Message] => [message.id, message]);
    this.store.patch({ tree: new Map([...this.store.value.tree, ...added]) });
  }

  async #follow(run: RunView): Promise<void> {
    this.#following?.abort();
    const following = new AbortController();
    this.#following = following;
    const { signal } = following;
    this.store.patch({ run });
    void refreshSessions();
    let lastId: string | undefined;
    while (!signal.aborted) {
      try {
        for await (const event of client.runEvents(run.id, lastId, signal)) {
          if (signal.aborted) return;
          lastId = event.id ?? lastId;
          this.#take(event);
          if (event.name === "done") return await this.#ended(run, signal);
        }
        if (!signal.aborted) lost(); // it ended without a last event: the server has gone
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof RequestError && error.status === 404) {
          return await this.#ended(run, signal); // the server was restarted
        }
        lost();
      }
      await whenOnline();
    }
  }

  async #ended(run: RunView, signal: AbortSignal): Promise<void> {
    for (;;) {
      try {
        await this.reload();
        break;
      } catch {
        await whenOnline();
        if (signal.aborted) return;
      }
    }
    if (this.store.value.run?.id === run.id) this.store.patch({ run: null });
    void refreshSessions();
  }

  #take(event: RunEvent): void {
    const handle = this.#handlers[event.name] as (data: RunEvent["data"]) => void;
    handle(event.data);
  }

  /** The handler of each kind of event. */
  readonly #handlers: {
    readonly [Name in RunEvent["name"]]: (data: Extract<RunEvent, { name: Name }>["data"]) => void;
  } = {
    snapshot: ({ messages }) => {
      for (const { id, content, reasoning, calls } of messages) {
        this.#live(id).replace({ text: content, reasoning, calls });
      }
    },
    delta: ({ message, text }) => this.#live(message).append(text),
    reasoning: ({ message, text }) => this.#live(message).think(text),
    call: ({ message, id, name }) => this.#live(message).call(id, name),
    arguments: ({ message, index, text }) => this.#live(message).callWith(index, text),
    gauge: (gauge) => this.#live(gauge.message).measure(gauge, performance.now()),
    warning: ({ text }) => {
      const { run } = this.store.value;
      if (run) this.store.patch({ run: { ...run, warning: text === "" ? null : text } });
    },
    end: ({ message, ...end }) => {
      const live = this.#live(message);
      live.finish();
      const before = this.store.value.tree.get(message);
      const { text: content, reasoning, calls } = live.said;
      if (before) this.#add([{ ...before, ...end, content, reasoning, calls: [...calls] }]);
      const { session } = this.store.value;
      if (session?.mode !== "story" || content.trim() !== "") return;
      this.store.patch({ silent: end.state === "complete" });
      if (end.error !== null) notify(end.error, "error");
    },
    done: () => {},
  };

  #live(id: string): LiveAnswer {
    const known = this.store.value.live.get(id);
    if (known) return known;
    const message = this.store.value.tree.get(id);
    const made = new LiveAnswer(message ? saidIn(message) : nothingSaid);
    this.store.patch({ live: new Map([...this.store.value.live, [id, made]]) });
    return made;
  }
}

/** One for each mode: switching between Chat and Story loses nothing. */
export const conversations: Readonly<Record<"chat" | "story", Conversation>> = {
  chat: new Conversation(),
  story: new Conversation(),
};

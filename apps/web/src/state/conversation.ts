// The open conversation: its tree of messages, its current message, and the answers that are being written. Used by
// Chat and Story. Everything is stored on the server; this is a view that follows it.
//
// An answer is followed through its run's events. If the connection breaks, it resumes after the last event; if the
// server was restarted meanwhile, the run is gone and its text is in the tree.

import { Backoff, retry, type Waits } from "../../../../src/base/backoff.ts";
import { RequestError, sentence } from "../api.ts";
import type {
  CallEnd,
  Message,
  NewSession,
  OpenSession,
  RunEvent,
  RunView,
  Started,
} from "../api-types.ts";
import { client, lost, noteFailure, whenLetIn } from "./connection.ts";
import { draftKey, keepDraftHere, moveDraft, setDraft } from "./drafts.ts";
import { LiveAnswer, nothingSaid, saidIn } from "./live.ts";
import { models, pageModel, servedModel, whileLoading } from "./models.ts";
import { notify } from "./notices.ts";
import { forgetPlace } from "./places.ts";
import { isNextPrivate, setNextPrivate } from "./private.ts";
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
  /** The reason why it cannot be read, or its answer not followed, after several tries; null: it can. tryAgain() asks once more. */
  problem: string | null;
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
  problem: null,
  silent: false,
};

/** A request that fails with a server error may work in a moment; after these tries the user decides. */
const waits: Waits = { firstMs: 500, mostMs: 10_000, tries: 6 };

export class Conversation {
  readonly store: Store<ConversationState> = new Store(empty);
  /** The session that is shown, or will be; null: none. */
  #wanted: string | null = null;
  #following = new AbortController();
  /** Number of pending requests; the list may be older meanwhile. */
  #asking = 0;
  /** Number of requests that have ended. */
  #asked = 0;
  /** Saves pending changes of settings: an answer uses the settings that the page shows. */
  saveFirst: () => Promise<void> = async () => {};

  /** Opens a session, or none. The previous one continues on the server. */
  async open(id: string | null): Promise<void> {
    if (id === this.#wanted && !this.store.value.missing) return;
    this.#wanted = id;
    this.store.set({ ...empty, loading: id !== null });
    const { signal } = this.#newFollowing();
    if (id !== null) await this.#load(id, signal);
  }

  /** Called after a problem. */
  async tryAgain(): Promise<void> {
    const id = this.#wanted;
    if (id === null) return;
    this.store.patch({ problem: null, loading: this.store.value.session === null });
    await this.#load(id, this.#newFollowing().signal);
  }

  #newFollowing(): AbortController {
    this.#following.abort();
    this.#following = new AbortController();
    return this.#following;
  }

  async #load(id: string, signal: AbortSignal): Promise<void> {
    const found = await this.#patiently(id, signal, () => client.tree(id));
    if (!found) return;
    const { session, messages } = found;
    if (session.private) keepDraftHere(draftKey(session.mode, id));
    const { live } = this.store.value;
    this.store.set({ ...empty, session, tree: treeOf(messages), live });
    if (session.run) void this.#follow(session.run);
  }

  /** Reads a part of a session, several times if need be; undefined: it is not there, or there is a problem, or another one is shown. */
  async #patiently<T>(
    id: string,
    signal: AbortSignal,
    read: () => Promise<T>,
  ): Promise<T | undefined> {
    try {
      const found = await retry(
        async () => {
          await whenLetIn();
          return await read();
        },
        waits,
        { signal, onFailure: passing },
      );
      return signal.aborted ? undefined : found;
    } catch (error) {
      if (!signal.aborted) this.#fail(id, error);
      return undefined;
    }
  }

  #fail(id: string, error: unknown): void {
    this.#following.abort();
    if (isGone(error)) {
      this.store.set({ ...empty, missing: true });
      forgetPlace(id);
    } else {
      this.store.patch({ loading: false, run: null, problem: sentence(error) });
    }
  }

  /** Reads the tree again: after an answer, a restart, a change elsewhere. */
  async reload(): Promise<void> {
    const { session } = this.store.value;
    if (!session) return;
    const asked = this.#asked;
    const fresh = await client.tree(session.id);
    if (!this.#isOpen(session.id)) return;
    // Results of requests during this read, such as the result of a call, may be missing in it.
    if (asked !== this.#asked) return await this.reload();
    this.store.patch({ session: fresh.session, tree: treeOf(fresh.messages) });
    const { run } = fresh.session;
    if (run && this.store.value.run?.id !== run.id) void this.#follow(run);
  }

  /** Applies changes to the open session from the list: another tab or program may have made them. */
  async sync(listed: OpenSession | undefined, isAll: boolean): Promise<void> {
    const { session, run, problem } = this.store.value;
    if (!session || problem !== null || this.#asking > 0) return; // a problem waits for the person
    const isDeleted = !listed && isAll && session.messageCount > 0;
    const isSame =
      run !== null || // an answer that is being followed is read again at its end
      (listed?.leaf === session.leaf &&
        listed.changedAt === session.changedAt &&
        listed.messageCount === session.messageCount &&
        listed.run === null);
    if (!isDeleted && (isSame || !listed)) return;
    try {
      await this.reload();
    } catch (error) {
      if (isGone(error) && this.#isOpen(session.id)) this.#fail(session.id, error);
    }
  }

  /**
   * Starts answers and follows them; without an open session, in a new one, which is deleted if the request is
   * refused.
   */
  async begin(wanted: NewSession, ask: (session: string) => Promise<Started>): Promise<Started> {
    if (this.store.value.session) return await this.start(ask);
    const made = await client.createSession({ ...wanted, private: isNextPrivate() });
    setNextPrivate(false);
    if (made.private) keepDraftHere(draftKey(wanted.mode, made.id));
    this.#wanted = made.id;
    this.store.set({ ...empty, session: made });
    const draft = draftKey(wanted.mode, null);
    try {
      const started = await this.start(ask, draft);
      moveDraft(draft, draftKey(wanted.mode, made.id));
      return started;
    } catch (error) {
      setNextPrivate(made.private);
      if (this.#isOpen(made.id)) {
        this.#wanted = null;
        this.store.set(empty);
      }
      if (error instanceof RequestError && !error.offline) {
        await client.deleteSession(made.id).catch(() => {}); // without messages it is not listed
      }
      throw error;
    }
  }

  /** Starts answers and follows them. `draft`: the key of the request's draft. */
  async start(begin: (session: string) => Promise<Started>, draft?: string): Promise<Started> {
    const { session } = this.store.value;
    if (!session) throw new RequestError(0, null, "There is no conversation yet.");
    const key = draft ?? draftKey(session.mode, session.id);
    await this.saveFirst();
    const asked = whileLoading(session.model, () => this.#ask(() => begin(session.id)));
    const started = await asked.catch((error: unknown) => {
      const isFull = error instanceof RequestError && error.reason === "context_length_exceeded";
      const name = session.model ?? pageModel(models.value, session.mode, null);
      const served = servedModel(models.value, name);
      if (isFull && served) setDraft(key, { fullAt: served.info.contextSize });
      throw error;
    });
    setDraft(key, { fullAt: null });
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
    const { signal } = this.#newFollowing();
    this.store.patch({ run });
    void refreshSessions();
    let lastId: string | undefined;
    const backoff = new Backoff(waits);
    while (!signal.aborted) {
      try {
        for await (const event of client.runEvents(run.id, lastId, signal)) {
          if (signal.aborted) return;
          lastId = event.id ?? lastId;
          this.#take(event);
          backoff.succeeded();
          if (event.name === "done") return await this.#ended(run, signal);
        }
        throw new Error("The connection ended in the middle of the answer.");
      } catch (error) {
        if (signal.aborted) return;
        // The server was restarted, or the session deleted.
        if (isGone(error)) return await this.#ended(run, signal);
        if (!(error instanceof RequestError)) lost();
        noteFailure(error);
        if (!(await backoff.failed(signal))) return this.#fail(run.session, error);
      }
      await whenLetIn();
    }
  }

  async #ended(run: RunView, signal: AbortSignal): Promise<void> {
    await this.#patiently(run.session, signal, () => this.reload());
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

function isGone(error: unknown): boolean {
  return error instanceof RequestError && error.status === 404;
}

/** Throws errors that another try cannot mend. */
function passing(error: unknown): void {
  if (isGone(error)) throw error;
  noteFailure(error);
}

/** One for each mode: switching between Chat and Story loses nothing. */
export const conversations: Readonly<Record<"chat" | "story", Conversation>> = {
  chat: new Conversation(),
  story: new Conversation(),
};

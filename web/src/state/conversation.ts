// The open conversation: its tree of messages, where it stands, and the answers that are being written. Chat and Story
// share it. Everything is on the server; this is a view that follows it.
//
// An answer is followed through its run's events. When the connection breaks, it goes on after the last event that came;
// when the server was started again meanwhile, the run is gone and what it wrote is in the tree.

import { RequestError } from "../api.ts";
import type { Message, NewSession, OpenSession, RunEvent, RunView, Started } from "../api-types.ts";
import { client, lost, whenOnline } from "./connection.ts";
import { LiveAnswer } from "./live.ts";
import { refreshSessions } from "./sessions.ts";
import { Store } from "./store.ts";
import { type Tree, treeOf } from "./tree.ts";

export interface ConversationState {
  /** null: none is open; the first message makes one. */
  session: OpenSession | null;
  tree: Tree;
  run: RunView | null;
  /** By message: answers that are written now or were, since this page was opened. */
  live: ReadonlyMap<string, LiveAnswer>;
  loading: boolean;
  /** The session in the address does not exist. */
  missing: boolean;
}

const empty: ConversationState = {
  session: null,
  tree: new Map(),
  run: null,
  live: new Map(),
  loading: false,
  missing: false,
};

export class Conversation {
  readonly store: Store<ConversationState> = new Store(empty);
  #following: AbortController | undefined;

  /** Opens a session, or none. What was open before goes on at the server. */
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
      if (!(error instanceof RequestError && error.status === 404)) throw error;
    }
  }

  /** Reads the tree again: after an answer, a restart, a change elsewhere. */
  async reload(): Promise<void> {
    const { session } = this.store.value;
    if (!session) return;
    const fresh = await client.tree(session.id);
    if (this.store.value.session?.id !== session.id) return;
    this.store.patch({ session: fresh.session, tree: treeOf(fresh.messages) });
  }

  /** The open session; made now if there is none. */
  async ensure(wanted: NewSession): Promise<OpenSession> {
    const { session } = this.store.value;
    if (session) return session;
    const made = await client.createSession(wanted);
    this.store.set({ ...empty, session: made });
    return made;
  }

  /** Starts answers and follows them. */
  async start(begin: (session: string) => Promise<Started>): Promise<Started> {
    const { session } = this.store.value;
    if (!session) throw new RequestError(0, null, "There is no conversation to answer in.");
    const started = await begin(session.id);
    this.#add(started.user ? [started.user, ...started.answers] : started.answers);
    const live = new Map(this.store.value.live);
    for (const { id } of started.answers) live.set(id, new LiveAnswer(""));
    const leaf = started.answers[0]!.id;
    // The server names a conversation after its first line; so do we until we hear what it made of it.
    const title = session.title || (started.user?.content.trim().split("\n", 1)[0] ?? "");
    this.store.patch({ live, session: { ...this.store.value.session!, leaf, title } });
    void this.#follow(started.run);
    return started;
  }

  async stop(): Promise<void> {
    const { run } = this.store.value;
    if (run) await client.cancelRun(run.id);
  }

  async change(change: Parameters<typeof client.changeSession>[1]): Promise<void> {
    const { session } = this.store.value;
    if (!session) return;
    const changed = await client.changeSession(session.id, change);
    if (this.store.value.session?.id === session.id) this.store.patch({ session: changed });
    if (change.title !== undefined) void refreshSessions();
  }

  /** A message without an answer. */
  async keep(ask: Parameters<typeof client.keep>[1]): Promise<void> {
    const { session } = this.store.value;
    if (!session) return;
    const message = await client.keep(session.id, ask);
    this.#add([message]);
    this.store.patch({ session: { ...this.store.value.session!, leaf: message.id } });
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
        if (!signal.aborted) lost(); // it ended without saying so: the server has gone
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof RequestError && error.status === 404) {
          return await this.#ended(run, signal); // the server was started again
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

  /** What to do with each kind of event. */
  readonly #handlers: {
    readonly [Name in RunEvent["name"]]: (data: Extract<RunEvent, { name: Name }>["data"]) => void;
  } = {
    snapshot: ({ messages }) => {
      for (const { id, content } of messages) this.#live(id).replace(content);
    },
    delta: ({ message, text }) => this.#live(message).append(text),
    gauge: (gauge) => this.#live(gauge.message).measure(gauge, performance.now()),
    warning: ({ text }) => {
      const { run } = this.store.value;
      if (run) this.store.patch({ run: { ...run, warning: text === "" ? null : text } });
    },
    end: ({ message, ...end }) => {
      const live = this.#live(message);
      live.finish();
      const before = this.store.value.tree.get(message);
      if (before) this.#add([{ ...before, ...end, content: live.text }]);
    },
    done: () => {},
  };

  #live(id: string): LiveAnswer {
    const known = this.store.value.live.get(id);
    if (known) return known;
    const made = new LiveAnswer(this.store.value.tree.get(id)?.content ?? "");
    this.store.patch({ live: new Map([...this.store.value.live, [id, made]]) });
    return made;
  }
}

/** One for each mode: going from Chat to Story and back loses nothing. */
export const conversations: Readonly<Record<"chat" | "story", Conversation>> = {
  chat: new Conversation(),
  story: new Conversation(),
};

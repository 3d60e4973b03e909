// The Chat page: a conversation with a model. Its data comes from state/conversation.ts; this file puts the components
// together and maps actions to requests.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { isAnswered, openCalls } from "../../../sessions/calls.ts";
import type { Message, SessionTool, SettingsChange } from "../api-types.ts";
import { ChatExtras } from "../components/chat-extras.tsx";
import { Composer } from "../components/composer.tsx";
import { ContextMeter } from "../components/context-meter.tsx";
import { Dialog } from "../components/dialog.tsx";
import { useFound } from "../components/found.ts";
import { FullContext } from "../components/full-context.tsx";
import { Mark } from "../components/icon.tsx";
import { type MessageActions, MessageView, Question } from "../components/message.tsx";
import { Missing, Unread } from "../components/missing.tsx";
import { chatProblem, NoChat } from "../components/no-chat.tsx";
import { PageHead } from "../components/page-head.tsx";
import { useEscape, useStickToEnd } from "../components/scroll.ts";
import { SettingsPanel } from "../components/settings-panel.tsx";
import { SummaryCard } from "../components/summary-card.tsx";
import { client } from "../state/connection.ts";
import { conversations } from "../state/conversation.ts";
import { draftKey, setDraft, useIsFull } from "../state/drafts.ts";
import { models, pageModel, servedModel } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { preferences, preferModel } from "../state/preferences.ts";
import { go } from "../state/route.ts";
import { useStore } from "../state/store.ts";
import { countBelow, pathTo } from "../state/tree.ts";
import { useSettings } from "../state/use-settings.ts";

const conversation = conversations.chat;

const actions: MessageActions = {
  edit: (message, text) =>
    void attempt(async () => {
      if (message.role === "assistant") {
        const kept = { role: "assistant", parent: message.parent, content: text } as const;
        return void (await conversation.keep(kept));
      }
      await conversation.start((id) => client.ask(id, { parent: message.parent, content: text }));
    }),
  regenerate: (message) =>
    void attempt(() =>
      conversation.start((id) => client.ask(id, { parent: message.id, regenerate: true })),
    ),
  continueAnswer: (message) =>
    void attempt(() =>
      conversation.start((id) => client.continueAnswer(id, { message: message.id })),
    ),
  goBack: (message) => void attempt(() => conversation.change({ leaf: message.id })),
  pick: (id) => void attempt(() => conversation.change({ branch: id })),
  endCall: async (session, message, call, result) => {
    const end = { message: message.id, call, ...result };
    const changed = await attempt(() => conversation.endCall(session, end));
    if (changed && isAnswered(changed)) actions.answerCalls(changed);
  },
  answerCalls: (message) =>
    void attempt(() => conversation.start((id) => client.ask(id, { parent: message.id }))),
};

const noTools: readonly SessionTool[] = [];

interface PageProps {
  id: string | null;
  /** A message from a search. */
  message?: string | undefined;
}

export function ChatPage({ id, message: wanted }: PageProps): JSX.Element {
  useEffect(() => void attempt(() => conversation.open(id)), [id]);
  const {
    session,
    tree,
    run,
    live,
    missing,
    problem: unread,
    loading,
  } = useStore(conversation.store);
  const preferred = useStore(preferences, (now) => now.models.chat);
  const list = useStore(models);
  const [settingsOpen, setSettingsOpen] = useState(false);
  // Sent to the server, which may be busy with another request.
  const [pending, setPending] = useState<string | null>(null);
  const [settings, changeSettings] = useSettings(conversation, "chat");
  const model = session?.model ?? pageModel(list, "chat", preferred);
  const served = servedModel(list, model);
  const problem = list.loaded ? chatProblem(served) : null;
  // The server loads the model of a conversation again when it continues.
  const canAsk = problem === null || (served === undefined && session !== null);
  const isShown = !missing && (unread === null || session !== null);
  const path = pathTo(tree, session?.leaf ?? null);
  const found = useFound(conversation, "chat", id, wanted);
  const { box, toEnd } = useStickToEnd(session?.id ?? null, found);
  const leaf = path.at(-1);
  const size = served?.info.contextSize ?? 0;
  const key = draftKey("chat", session?.id ?? null);
  const wasRefused = useIsFull(key, size);
  const isFull =
    settings.window !== true &&
    (wasRefused || (leaf?.stopReason === "context" && usedBy(leaf) >= size - 1));
  const isWaiting = leaf !== undefined && openCalls(leaf).length > 0;
  const stop = (): void => void attempt(() => conversation.stop());
  useEscape(run !== null, stop);

  const send = async (content: string): Promise<boolean> => {
    setPending(content);
    toEnd();
    const begun = await attempt(() =>
      conversation.begin({ mode: "chat", model: served?.id ?? null, settings }, (session) =>
        client.ask(session, { content }),
      ),
    );
    setPending(null);
    if (begun) go("chat", begun.run.session, id === null);
    return begun !== undefined;
  };
  const pickModel = (name: string): void => {
    preferModel("chat", name);
    if (session) void attempt(() => conversation.change({ model: name }));
  };

  return (
    <div class="talk">
      <PageHead
        session={session}
        fallback="Chat"
        model={model}
        busy={run !== null}
        onModel={pickModel}
        onSettings={() => setSettingsOpen(true)}
      />
      <div class="scroller" ref={box}>
        <div class="column">
          {missing && <Missing mode="chat" />}
          {path.length === 0 && isShown && !loading && pending === null && problem === null && (
            <Welcome onPick={send} />
          )}
          {session?.settings.summary !== undefined && (
            <SummaryCard
              key={session.id}
              text={session.settings.summary}
              onChange={(text) =>
                void attempt(() => conversation.change({ settings: { summary: text } }))
              }
            />
          )}
          {path.map((message, at) => (
            <MessageView
              key={message.id}
              session={session!.id}
              message={message}
              tree={tree}
              live={live.get(message.id)}
              isLast={at === path.length - 1}
              found={message.id === found}
              busy={run !== null}
              canAnswer={canAsk}
              tools={settings.tools ?? noTools}
              actions={actions}
            />
          ))}
          {pending !== null && (
            <article class="message user pending">
              <Question content={pending} />
            </article>
          )}
          {session && run === null && pending === null && (
            <Onward leaf={path.at(-1)} count={countBelow(tree, session.leaf)} />
          )}
          {served && isFull && run === null && pending === null && (
            <FullContext
              key={session?.id}
              session={session}
              served={served}
              onWindow={() => {
                changeSettings({ window: true });
                setDraft(key, { fullAt: null });
              }}
            />
          )}
          {problem !== null && !loading && isShown && (
            <NoChat served={served} wanted={model} reloads={canAsk} />
          )}
        </div>
      </div>
      {run?.warning && <p class="banner">{run.warning}</p>}
      <Unread conversation={conversation} problem={unread} />
      {isShown && canAsk && (
        <div class="foot">
          <Composer
            draft={key}
            placeholder={
              isWaiting ? "Answer the call above first, or refuse it" : "Write a message"
            }
            busy={run !== null || pending !== null}
            disabled={loading || isWaiting}
            onSend={send}
            onStop={stop}
          />
          <div class="foot-row">
            <ChatExtras settings={settings} onChange={changeSettings} />
            <ContextMeter
              path={path}
              contextSize={served?.info.contextSize}
              slides={settings.window ? "the latest part only" : undefined}
              hint="Enter sends, Shift+Enter is a new line, Escape stops"
            />
          </div>
        </div>
      )}
      {settingsOpen && (
        <Dialog title="Settings of this chat" place="side" onClose={() => setSettingsOpen(false)}>
          <SettingsPanel
            settings={settings}
            withSystem
            onChange={(change: SettingsChange) => changeSettings(change)}
          />
        </Dialog>
      )}
    </div>
  );
}

function usedBy({ tokens }: Message): number {
  return (tokens?.prompt ?? 0) + (tokens?.generated ?? 0);
}

/** After going back: a button to go forward again. */
function Onward({ leaf, count }: { leaf: Message | undefined; count: number }): JSX.Element | null {
  if (!leaf || count === 0) return null;
  return (
    <p class="onward">
      You went back to here. {count} later message{count === 1 ? "" : "s"} stay
      {count === 1 ? "s" : ""} in another branch.{" "}
      <button type="button" class="link" onClick={() => actions.pick(leaf.id)}>
        Show {count === 1 ? "it" : "them"}
      </button>
    </p>
  );
}

const suggestions = [
  "Explain how a lighthouse works, in three sentences.",
  "Write a haiku about rain on a tin roof.",
  "Give me five names for a small boat.",
];

function Welcome({ onPick }: { onPick(text: string): Promise<boolean> }): JSX.Element {
  return (
    <section class="welcome">
      <Mark />
      <h2>What shall we talk about?</h2>
      <p>Everything is computed on this machine. Nothing you write leaves it.</p>
      <div class="suggestions">
        {suggestions.map((text) => (
          <button key={text} type="button" onClick={() => void onPick(text)}>
            {text}
          </button>
        ))}
      </div>
    </section>
  );
}

// The Story page: a text that a person and a model write together. The text is the path of the session's tree, in
// pieces by either. Continuing adds a piece, undoing goes back by one, and alternatives are sibling pieces.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Message } from "../api-types.ts";
import { Alternatives } from "../components/alternatives.tsx";
import { Dialog } from "../components/dialog.tsx";
import { EditBox } from "../components/edit-box.tsx";
import { useFound } from "../components/found.ts";
import { Missing, Unread } from "../components/missing.tsx";
import { NotLoadedText } from "../components/no-chat.tsx";
import { OtherVersion, otherVersion } from "../components/other-version.tsx";
import { PageHead } from "../components/page-head.tsx";
import { useEscape, useStickToEnd } from "../components/scroll.ts";
import { SettingsPanel } from "../components/settings-panel.tsx";
import { StoryFoot } from "../components/story-foot.tsx";
import { StoryText } from "../components/story-text.tsx";
import { client } from "../state/connection.ts";
import { conversations } from "../state/conversation.ts";
import { draftKey, draftOf, setDraft, useDraft } from "../state/drafts.ts";
import { models, pageModel, servedModel } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { preferences, preferModel } from "../state/preferences.ts";
import { go, hrefOf } from "../state/route.ts";
import { useStore } from "../state/store.ts";
import { joinDraft } from "../state/story-text.ts";
import { children, pathTo } from "../state/tree.ts";
import { useSettings } from "../state/use-settings.ts";

const conversation = conversations.story;

const beginnings = [
  "Once upon a time, there was a little lighthouse that",
  "The robot had never seen snow before.",
  "Lily and Tom found a tiny door in the old oak tree.",
];

interface PageProps {
  id: string | null;
  /** A piece from a search. */
  message?: string | undefined;
}

export function StoryPage({ id, message: wanted }: PageProps): JSX.Element {
  useEffect(() => void attempt(() => conversation.open(id)), [id]);
  const state = useStore(conversation.store);
  const { session, tree, run, live, missing, problem, loading, silent } = state;
  const list = useStore(models);
  const preferred = useStore(preferences, (now) => now.models.story);
  const key = draftKey("story", session?.id ?? null);
  const { text: draft } = useDraft(key);
  // Requested, but not started yet: the server may be busy with another request.
  const [starting, setStarting] = useState(false);
  const [choosing, setChoosing] = useState<readonly string[]>([]);
  const [redo, setRedo] = useState<readonly string[]>([]);
  const [editing, setEditing] = useState<Message | null>(null);
  const [settingsOpen, setSettingsOpen] = useState(false);
  const [settings, changeSettings] = useSettings(conversation, "story");
  const area = useRef<HTMLTextAreaElement>(null);
  const model = session?.model ?? pageModel(list, "story", preferred);
  const served = servedModel(list, model);
  const path = pathTo(tree, session?.leaf ?? null).filter(
    ({ content, state: how }) => content !== "" || how === "streaming",
  );
  const isShown = !missing && (problem === null || session !== null);
  // Alternatives that wait for a choice are not part of the text yet.
  const text = path.filter((piece) => !choosing.includes(piece.id));
  const options = choosing.flatMap((one) => tree.get(one) ?? []);
  const found = useFound(conversation, "story", id, wanted);
  const { box, toEnd } = useStickToEnd(session?.id ?? null, found);
  const stop = (): void => void attempt(() => conversation.stop());
  useEscape(run !== null, stop);
  const shownId = session?.id ?? null;
  // Another story starts with a clean state.
  useEffect(() => {
    setChoosing([]);
    setRedo([]);
  }, [shownId]);

  // After a reload, alternatives that are still being written are side by side again.
  useEffect(() => {
    if (run && run.messages.length > 1) setChoosing(run.messages);
  }, [run]);
  // All of them were empty.
  const isOver = run === null && choosing.length > 0 && options.length === 0;
  // Or another tab has chosen.
  const leaf = session?.leaf ?? null;
  const isElsewhere =
    run === null && options.length > 0 && leaf !== choosing[0] && leaf !== options[0]!.parent;
  useEffect(() => {
    if (isOver || isElsewhere) setChoosing([]);
  }, [isOver, isElsewhere]);
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) area.current?.focus(); // not on a phone, where the keyboard would pop up
  }, []);

  /** Requests `count` continuations of the text, including the draft. */
  const continueAnswer = async (count: number): Promise<void> => {
    const written = draft;
    if (text.length === 0 && written.trim() === "") return area.current?.focus();
    setStarting(true);
    toEnd();
    setDraft(key, { text: "" }); // text typed from now on is for the next piece
    refocus();
    const begun = await attempt(async () => {
      const joined = joinDraft(text.at(-1)?.content ?? "", written);
      const content = joined === "" ? {} : { content: joined };
      const parent = text.at(-1)?.id ?? null;
      const made = { mode: "story", model: served?.id ?? null, settings } as const;
      return await conversation.begin(made, (one) =>
        client.continueAnswer(one, { ...content, parent, n: count }),
      );
    });
    setStarting(false);
    if (!begun) return setDraft(key, { text: written + draftOf(key).text });
    go("story", begun.run.session, id === null);
    setRedo([]);
    setChoosing(count > 1 ? begun.answers.map((answer) => answer.id) : []);
  };
  /** Returns the focus to the box after a button press; on a phone only if the keyboard is already shown. */
  const refocus = (): void => {
    if (matchMedia("(hover: hover)").matches) area.current?.focus();
  };
  const choose = (choice: string): void =>
    void attempt(async () => {
      await conversation.change({ leaf: choice });
      setChoosing([]);
      refocus();
    });
  const undo = (): void => {
    const last = text.at(-1);
    if (!last) return;
    void attempt(async () => {
      await conversation.change({ leaf: last.parent });
      setChoosing([]);
      setRedo([...redo, last.id]);
    });
  };
  const redoOne = (): void => {
    const next = redo.at(-1);
    if (next === undefined) return;
    void attempt(async () => {
      await conversation.change({ leaf: next });
      setRedo(redo.slice(0, -1));
    });
  };
  const edit = (message: Message, content: string): void => {
    setEditing(null);
    void attempt(async () => {
      await conversation.keep({ role: message.role, parent: message.parent, content });
      refocus();
    });
  };
  const other =
    run || starting || choosing.length > 0 ? undefined : otherVersion(tree, text.at(-1));
  const append = (rest: readonly Message[]): void =>
    void attempt(async () => {
      let parent = text.at(-1)?.id;
      for (const { role, content } of rest) {
        if (parent === undefined) return;
        parent = (await conversation.keep({ role, parent, content }))?.id;
      }
      refocus();
    });
  const pickModel = (name: string): void => {
    preferModel("story", name);
    if (session) void attempt(() => conversation.change({ model: name }));
  };
  const later = session && !run ? children(tree, session.leaf) : [];

  return (
    <div class="talk story">
      <PageHead
        session={session}
        fallback="Story"
        model={model}
        busy={run !== null}
        onModel={pickModel}
        onSettings={() => setSettingsOpen(true)}
      />
      <div class="scroller" ref={box}>
        <div class="column wide">
          {missing && <Missing mode="story" />}
          {isShown && (
            <div class="sheet">
              {path.length === 0 && !loading && (
                <StoryWelcome onPick={(begin) => startWith(begin)} />
              )}
              <StoryText
                pieces={text}
                tree={tree}
                live={live}
                busy={run !== null || choosing.length > 0}
                found={found}
                onEdit={setEditing}
                onGoBack={(message) =>
                  void attempt(() => conversation.change({ leaf: message.id }))
                }
                onPick={(choice) => void attempt(() => conversation.change({ branch: choice }))}
              />
              {options.length > 0 && (
                <Alternatives
                  answers={options}
                  live={live}
                  busy={run !== null}
                  onChoose={choose}
                  onAgain={() => void continueAnswer(choosing.length)}
                />
              )}
              <textarea
                ref={area}
                class="draft"
                rows={1}
                dir="auto"
                aria-label="Continue writing"
                aria-keyshortcuts="M"
                placeholder={placeholder(text.length === 0, choosing.length > 0)}
                value={draft}
                onInput={(event) => setDraft(key, { text: event.currentTarget.value })}
                onKeyDown={(event) => {
                  const isWanted = event.key === "Enter" && (event.ctrlKey || event.metaKey);
                  if (isWanted && !run && !starting && choosing.length === 0)
                    void continueAnswer(1);
                }}
              />
              {other && (
                <OtherVersion
                  {...other}
                  onShow={() =>
                    void attempt(() => conversation.change({ branch: other.version.id }))
                  }
                  onAppend={() => append(other.rest)}
                />
              )}
              {later.length > 0 && redo.length === 0 && choosing.length === 0 && (
                <p class="onward">
                  The story went on from here.{" "}
                  <button
                    type="button"
                    class="link"
                    onClick={() =>
                      void attempt(() =>
                        conversation.change({ branch: session!.leaf ?? later.at(-1)!.id }),
                      )
                    }
                  >
                    Show how
                  </button>
                </p>
              )}
            </div>
          )}
        </div>
      </div>
      {run?.warning && <p class="banner">{run.warning}</p>}
      <Unread conversation={conversation} problem={problem} />
      {!served && list.loaded && session?.model && (
        <p class="banner" role="status">
          <NotLoadedText name={session.model} />
        </p>
      )}
      {!served && list.loaded && !session?.model ? (
        <p class="foot hint">
          {model ?? "No model"} is not loaded. <a href={hrefOf("models")}>Load one</a> to go on.
        </p>
      ) : (
        <StoryFoot
          path={text}
          live={live}
          silent={silent}
          contextSize={served?.info.contextSize}
          settings={settings}
          busy={run !== null || starting}
          canGoOn={
            !loading && isShown && choosing.length === 0 && (text.length > 0 || draft.trim() !== "")
          }
          canUndo={run === null && text.length > 0}
          canRedo={run === null && redo.length > 0}
          onContinue={(count) => void continueAnswer(count)}
          onStop={stop}
          onUndo={undo}
          onRedo={redoOne}
          onSettings={changeSettings}
        />
      )}
      {editing && (
        <Dialog title="Rewrite this piece" onClose={() => setEditing(null)}>
          <EditBox
            text={editing.content}
            label="Piece of the story"
            action="Keep"
            onCancel={() => setEditing(null)}
            onDone={(content) => edit(editing, content)}
          />
        </Dialog>
      )}
      {settingsOpen && (
        <Dialog title="Settings of this story" place="side" onClose={() => setSettingsOpen(false)}>
          <SettingsPanel settings={settings} withSystem={false} onChange={changeSettings} />
        </Dialog>
      )}
    </div>
  );

  function startWith(begin: string): void {
    setDraft(key, { text: begin });
    area.current?.focus();
  }
}

function placeholder(isEmpty: boolean, isChoosing: boolean): string {
  if (isChoosing) return "Choose one of these, then continue…";
  return isEmpty ? "Begin your story here…" : "Continue writing, or let the model…";
}

function StoryWelcome({ onPick }: { onPick(text: string): void }): JSX.Element {
  return (
    <section class="story-welcome">
      <p>
        Write the first words, then let the model continue. Take turns as long as you like; every
        version is kept.
      </p>
      <div class="suggestions">
        {beginnings.map((text) => (
          <button key={text} type="button" onClick={() => onPick(text)}>
            {text.trim().replace(/\.?$/, "…")}
          </button>
        ))}
      </div>
    </section>
  );
}

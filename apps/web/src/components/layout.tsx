// The frame around every page: the logo, navigation, the conversations of Chat and Story, the theme; on a phone a
// bottom bar and a drawer. Also the parts of all pages: the banner when the server is gone, notices, the API key.

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { blocked } from "../state/begin.tsx";
import { askNow, client, connection, setKey } from "../state/connection.ts";
import { conversations } from "../state/conversation.ts";
import { attempt } from "../state/notices.ts";
import { lastOpen, scrolled } from "../state/places.ts";
import { applyTheme, prefer, preferences, type Theme } from "../state/preferences.ts";
import { hrefOf, type PageName, pages, type Route } from "../state/route.ts";
import { refreshSessions } from "../state/sessions.ts";
import { useStore } from "../state/store.ts";
import { Dialog } from "./dialog.tsx";
import { Icon, type IconName, Mark } from "./icon.tsx";
import { Notices } from "./notices.tsx";
import { SessionList } from "./session-list.tsx";
import { ShortcutList, useShortcuts } from "./shortcuts.tsx";
import { Trouble } from "./trouble.tsx";

const labels: Readonly<Record<PageName, string>> = {
  chat: "Chat",
  story: "Story",
  machine: "Machine",
  limits: "Limits",
  quantize: "Quantize",
  models: "Models",
  batches: "Batches",
};

export function Layout({
  route,
  children,
}: {
  route: Route;
  children: ComponentChildren;
}): JSX.Element {
  const [drawer, setDrawer] = useState(false);
  const [keys, setKeys] = useState(false);
  const [asksKey, setAsksKey] = useState(true);
  const showKeys = useCallback(() => setKeys(true), []);
  useShortcuts(showKeys);
  useTitle(route);
  useKeptScroll(route.page);
  const { online, needsKey } = useStore(connection);
  const policy = useStore(blocked);
  const mode = route.page === "chat" || route.page === "story" ? route.page : undefined;
  useEffect(() => {
    if (!drawer) return;
    const close = (event: KeyboardEvent): void => {
      if (event.key === "Escape") setDrawer(false);
    };
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [drawer]);
  return (
    <div class={`frame ${drawer ? "drawer-open" : ""}`}>
      <button type="button" class="skip" onClick={skipToContent}>
        Skip to the content
      </button>
      <header class="topbar">
        {mode && (
          <button
            type="button"
            class="quiet"
            aria-label="Conversations"
            aria-expanded={drawer}
            onClick={() => setDrawer(true)}
          >
            <Icon name="menu" />
          </button>
        )}
        <span class="brand">
          <Mark /> Lantern
        </span>
        <KeysButton onClick={showKeys} />
        <ThemeButton />
      </header>
      <aside class="sidebar">
        <div class="row between">
          <BrandLink />
          <span class="row tight">
            <KeysButton onClick={showKeys} />
            <ThemeButton />
          </span>
        </div>
        <Navigation page={route.page} />
        {mode && (
          <SessionList
            mode={mode}
            open={route.id}
            onPick={() => setDrawer(false)}
            onRename={(session, title) => void attempt(() => rename(session.id, mode, title))}
          />
        )}
      </aside>
      {drawer && (
        <button
          type="button"
          class="shade"
          aria-label="Close the list"
          onClick={() => setDrawer(false)}
        />
      )}
      <div class="stage">
        {!online && (
          <p class="banner" role="status">
            The server does not respond. Nothing is lost: this page continues when the server is
            back.{" "}
            <button type="button" class="link" onClick={askNow}>
              Try now
            </button>
          </p>
        )}
        {needsKey && !asksKey && (
          <Trouble action="Enter it" onAgain={() => setAsksKey(true)}>
            This server needs an API key.
          </Trouble>
        )}
        {policy !== null && (
          <p class="banner" role="alert">
            Something in front of Lantern, such as a proxy, adds a content security policy that is
            stricter than Lantern's own: {policy} has blocked a part of this page. Let it pass
            Lantern's header on unchanged.
          </p>
        )}
        <Notices />
        <main id="content" tabIndex={-1}>
          {children}
        </main>
      </div>
      <Navigation page={route.page} bottom />
      {keys && <ShortcutList onClose={() => setKeys(false)} />}
      {needsKey && asksKey && <KeyDialog onClose={() => setAsksKey(false)} />}
    </div>
  );
}

function skipToContent(): void {
  document.getElementById("content")?.focus();
}

async function rename(id: string, mode: "chat" | "story", title: string): Promise<void> {
  const conversation = conversations[mode];
  if (conversation.store.value.session?.id === id) return await conversation.change({ title });
  await client.changeSession(id, { title });
  await refreshSessions();
}

/** The tab's title: the open item, and its page. */
function useTitle({ page }: Route): void {
  const chat = useStore(conversations.chat.store, ({ session }) => session?.title);
  const story = useStore(conversations.story.store, ({ session }) => session?.title);
  const open = { chat, story }[page as "chat" | "story"];
  const title = [open, labels[page], "Lantern"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
}

const restoreMs = 1500;

/** Restores the scroll position of a long page, whose content may take a moment to load. */
function useKeptScroll(page: PageName): void {
  useEffect(() => {
    const wanted = scrolled.get(page);
    let isRestoring = wanted !== undefined;
    const stop = (): void => {
      isRestoring = false;
    };
    const onScroll = ({ target }: Event): void => {
      if (!(target instanceof HTMLElement && target.matches(".facts")) || isRestoring) return;
      scrolled.set(page, target.scrollTop);
    };
    const restore = (): void => {
      const scroller = document.querySelector(".facts");
      if (!isRestoring || !scroller) return;
      scroller.scrollTop = wanted!;
      if (Math.abs(scroller.scrollTop - wanted!) < 2) stop();
    };
    const observer = new MutationObserver(restore);
    observer.observe(document.getElementById("content")!, { childList: true, subtree: true });
    const timer = setTimeout(stop, restoreMs);
    addEventListener("scroll", onScroll, { capture: true, passive: true });
    addEventListener("wheel", stop, { passive: true });
    restore();
    return () => {
      observer.disconnect();
      clearTimeout(timer);
      removeEventListener("scroll", onScroll, { capture: true });
      removeEventListener("wheel", stop);
    };
  }, [page]);
}

function BrandLink(): JSX.Element {
  const last = useStore(lastOpen);
  return (
    <a class="brand" href={hrefOf("chat", last.chat)}>
      <Mark /> Lantern
    </a>
  );
}

function KeysButton({ onClick }: { onClick(): void }): JSX.Element {
  return (
    <button
      type="button"
      class="quiet keys-button"
      aria-label="Keyboard shortcuts"
      title="Keyboard shortcuts (?)"
      onClick={onClick}
    >
      <Icon name="keyboard" />
    </button>
  );
}

function Navigation({ page, bottom = false }: { page: PageName; bottom?: boolean }): JSX.Element {
  // Chat and Story lead back to the last open conversation.
  const last = useStore(lastOpen);
  return (
    <nav class={bottom ? "tabs" : "pages"} aria-label="Pages">
      {pages.map((name) => (
        <a
          key={name}
          href={hrefOf(name, name === "chat" || name === "story" ? last[name] : null)}
          aria-current={name === page ? "page" : undefined}
        >
          <Icon name={name} />
          <span>{labels[name]}</span>
        </a>
      ))}
    </nav>
  );
}

const themes: Readonly<Record<Theme, { icon: IconName; label: string; next: Theme }>> = {
  auto: { icon: "auto", label: "Colours: same as the system", next: "light" },
  light: { icon: "sun", label: "Colours: light", next: "dark" },
  dark: { icon: "moon", label: "Colours: dark", next: "auto" },
};

function ThemeButton(): JSX.Element {
  const theme = useStore(preferences, (now) => now.theme);
  const { icon, label, next } = themes[theme];
  const change = (): void => {
    prefer({ theme: next });
    applyTheme();
  };
  return (
    <button type="button" class="quiet" aria-label={label} title={label} onClick={change}>
      <Icon name={icon} />
    </button>
  );
}

function KeyDialog({ onClose }: { onClose(): void }): JSX.Element {
  const [key, set] = useState("");
  return (
    <Dialog title="This server needs an API key" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          setKey(key);
          location.reload();
        }}
      >
        <label class="field">
          <span class="field-label">API key</span>
          <input
            type="password"
            autocomplete="off"
            value={key}
            onInput={(event) => set(event.currentTarget.value)}
          />
          <span class="hint">
            The key that the server was started with (--api-key or LANTERN_API_KEY). It is kept
            until this tab is closed.
          </span>
        </label>
        <div class="row end">
          <button type="submit" class="primary" disabled={key === ""}>
            Use it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

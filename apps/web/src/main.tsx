// The web app's entry: loads the server's state, decides on the first page, and shows the page of the URL. Chat and
// Story are in the main bundle; the other pages are loaded when they are opened.

import type { ComponentType, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { sentence } from "./api.ts";
import { AccessPage } from "./components/access-page.tsx";
import { Layout } from "./components/layout.tsx";
import { Trouble } from "./components/trouble.tsx";
import { ChatPage } from "./pages/chat.tsx";
import { StoryPage } from "./pages/story.tsx";
import { begin } from "./state/begin.tsx";
import { client, connection, watchServer, whenOnline } from "./state/connection.ts";
import { conversations } from "./state/conversation.ts";
import { models, refreshModels, servedModel } from "./state/models.ts";
import { attempt } from "./state/notices.ts";
import { watchPlaces } from "./state/places.ts";
import { applyTheme } from "./state/preferences.ts";
import { go, type PageName, type Route, route, watchRoute } from "./state/route.ts";
import { readSessions, refreshSessions, sessions } from "./state/sessions.ts";
import { useStore } from "./state/store.ts";
import { warmUp, whenIdle } from "./state/warm-up.ts";

type Page = ComponentType<{ id: string | null; message?: string | undefined }>;

const later: Readonly<Partial<Record<PageName, () => Promise<Page>>>> = {
  machine: async () => (await import("./pages/machine.tsx")).MachinePage,
  limits: async () => (await import("./pages/limits.tsx")).LimitsPage,
  quantize: async () => (await import("./pages/quantize.tsx")).QuantizePage,
  models: async () => (await import("./pages/models.tsx")).ModelsPage,
  batches: async () => (await import("./pages/batches.tsx")).BatchesPage,
};

const known: Partial<Record<PageName, Page>> = { chat: ChatPage, story: StoryPage };

function App(): JSX.Element | null {
  const now = useStore(route);
  const need = useStore(connection, ({ access }) => access);
  if (need !== null) return <AccessPage need={need} />;
  return now ? (
    <Layout route={now}>
      <PageOf route={now} />
    </Layout>
  ) : null;
}

function PageOf({ route: { page, id, message } }: { route: Route }): JSX.Element | null {
  const [, render] = useState(0);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    setProblem(null);
    const load = async (): Promise<void> => {
      const found = await later[page]?.();
      if (!found) return;
      known[page] = found;
      render((count) => count + 1);
    };
    if (!known[page]) load().catch((error: unknown) => setProblem(sentence(error)));
  }, [page]);
  const Shown = known[page];
  if (Shown) return <Shown id={id} message={message} />;
  if (problem === null) return null;
  // A newer server has other files; the browser does not load a module again that it could not load once.
  return (
    <Trouble action="Reload" onAgain={() => location.reload()}>
      This page could not be loaded: {problem}
    </Trouble>
  );
}

/** Reloads the list, and with it changes by another tab or program to the open conversation. */
async function look(): Promise<void> {
  const { access, needsKey } = connection.value;
  if (needsKey) return;
  if (access !== null) {
    await client.sessions(); // another tab may have opened the link
    return location.reload();
  }
  if (sessions.value.isOff) return await client.health();
  await readSessions();
  const { sessions: all, next } = sessions.value;
  for (const conversation of Object.values(conversations)) {
    const open = conversation.store.value.session?.id;
    const listed = all.find(({ id }) => id === open);
    await conversation.sync(listed, next === null);
  }
}

async function start(): Promise<void> {
  applyTheme();
  watchRoute();
  watchPlaces();
  watchServer(look);
  await Promise.all([attempt(refreshModels), refreshSessions()]);
  await whenOnline();
  if (!models.value.loaded) await attempt(refreshModels);
  // A model without a chat template opens the Story page.
  const first = servedModel(models.value, null);
  if (!route.value) go(first && !first.info.hasChatTemplate ? "story" : "chat", null, true);
  whenIdle(warmUp);
  // A restarted server may have other models.
  let wasOnline = true;
  connection.watch(() => {
    const { online } = connection.value;
    if (online && !wasOnline) void attempt(refreshModels).then(refreshSessions);
    wasOnline = online;
  });
}

if (begin(<App />)) void start();

// The web app's entry: reads what the server has, decides on the first page, and shows the page that the address names.
// Chat and Story come with it; the other pages are loaded when they are opened.

import { type ComponentType, type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Layout } from "./components/layout.tsx";
import { ChatPage } from "./pages/chat.tsx";
import { StoryPage } from "./pages/story.tsx";
import { connection, watchServer, whenOnline } from "./state/connection.ts";
import { models, refreshModels, servedModel } from "./state/models.ts";
import { attempt } from "./state/notices.ts";
import { applyTheme } from "./state/preferences.ts";
import { go, type PageName, type Route, route, watchRoute } from "./state/route.ts";
import { refreshSessions } from "./state/sessions.ts";
import { useStore } from "./state/store.ts";
import { warmUp, whenIdle } from "./state/warm-up.ts";

type Page = ComponentType<{ id: string | null }>;

const later: Readonly<Partial<Record<PageName, () => Promise<Page>>>> = {
  machine: async () => (await import("./pages/machine.tsx")).MachinePage,
  limits: async () => (await import("./pages/limits.tsx")).LimitsPage,
  quantize: async () => (await import("./pages/quantize.tsx")).QuantizePage,
  models: async () => (await import("./pages/models.tsx")).ModelsPage,
};

const known: Partial<Record<PageName, Page>> = { chat: ChatPage, story: StoryPage };

function App(): JSX.Element | null {
  const now = useStore(route);
  return now ? (
    <Layout route={now}>
      <PageOf route={now} />
    </Layout>
  ) : null;
}

function PageOf({ route: { page, id } }: { route: Route }): JSX.Element | null {
  const [, render] = useState(0);
  useEffect(() => {
    const load = async (): Promise<void> => {
      const found = await later[page]?.();
      if (!found) return;
      known[page] = found;
      render((count) => count + 1);
    };
    if (!known[page]) void attempt(load);
  }, [page]);
  const Shown = known[page];
  return Shown ? <Shown id={id} /> : null;
}

async function start(): Promise<void> {
  applyTheme();
  watchRoute();
  watchServer();
  await Promise.all([attempt(refreshModels), refreshSessions()]);
  await whenOnline();
  if (!models.value.loaded) await attempt(refreshModels);
  // A model that cannot chat tells stories.
  const first = servedModel(models.value, null);
  if (!route.value) go(first && !first.info.hasChatTemplate ? "story" : "chat", null, true);
  whenIdle(warmUp);
  // Another tab, or another program, may have added conversations meanwhile.
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") void refreshSessions();
  });
  // A server that was started again may have other models.
  let wasOnline = true;
  connection.watch(() => {
    const { online } = connection.value;
    if (online && !wasOnline) void attempt(refreshModels).then(refreshSessions);
    wasOnline = online;
  });
}

render(<App />, document.getElementById("app")!);
void start();

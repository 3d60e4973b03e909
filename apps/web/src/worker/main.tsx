// The page /worker: this tab opens a model and computes for a cluster, until it is closed or stopped (docs/use/cluster.md#browser-tabs-as-workers). The
// user enters the cluster and the credentials; the address of the page can fill in all but the credentials:
// /worker?cluster=wss://nats:8443&name=tiny&model=https://...

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Progress } from "../components/progress.tsx";
import { begin } from "../state/begin.tsx";
import type { TabChoice, TabState, ToThread } from "./messages.ts";

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): unknown;
}

// The bundler needs the address of the thread at the call that starts it, so it cannot be wrapped there: all go through this.
(globalThis as { trustedTypes?: TrustedTypes }).trustedTypes?.createPolicy("default", {
  createScriptURL: (url) => {
    const { origin, pathname } = new URL(url, location.href);
    if (origin === location.origin && pathname.startsWith("/threads/")) return url;
    throw new TypeError(`this page starts its own threads only: got ${url.slice(0, 200)}`);
  },
});

const asked = new URLSearchParams(location.search);
const usual = (key: string, otherwise = ""): string => asked.get(key) ?? otherwise;
/** A group is one part of NATS's subjects. */
const groupPattern = "[A-Za-z0-9_\\-]+";

function WorkerPage(): JSX.Element {
  const [state, setState] = useState<TabState>({ is: "idle" });
  const thread = useRef<Worker>(null);
  const send = (message: ToThread): void => thread.current?.postMessage(message);
  useEffect(() => {
    const made = new Worker(new URL("./thread.ts", import.meta.url), {
      type: "module",
      name: "lantern-tab",
    });
    made.addEventListener("message", ({ data }: MessageEvent<TabState>) => setState(data));
    made.addEventListener("error", ({ message }) =>
      setState({ is: "failed", why: message ?? "the page's thread could not be loaded" }),
    );
    thread.current = made;
    return () => made.terminate();
  }, []);
  const isBusy = state.is !== "idle" && state.is !== "failed";
  const start = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const choice = await choiceOf(new FormData(event.currentTarget as HTMLFormElement));
    if (typeof choice === "string") setState({ is: "failed", why: choice });
    else send(choice);
  };
  return (
    <div class="facts">
      <header class="facts-head">
        <h1>Compute for a cluster</h1>
        <p>
          This tab opens a model and answers requests of a cluster's gateways, until you stop it or
          close it. It sees the texts of the requests that it answers.
        </p>
      </header>
      <form class="card controls" onSubmit={(event) => void start(event)}>
        <fieldset class="wide choices" disabled={isBusy}>
          <Field label="Model file" hint="It stays on this machine">
            <input name="file" type="file" accept=".gguf,.bin" />
          </Field>
          <Field label="or its address" hint="Its server must answer range requests">
            <input name="model" type="url" value={usual("model")} />
          </Field>
          <Field label="Name for clients" hint="The same on all workers of a model">
            <input name="name" required value={usual("name")} />
          </Field>
          <Field label="NATS" hint="The WebSocket of a NATS server">
            <input name="cluster" required value={usual("cluster")} placeholder="wss://nats:8443" />
          </Field>
          <Field label="Group" hint="What the credentials are good for">
            <input name="group" required pattern={groupPattern} value={usual("group", "tabs")} />
          </Field>
          <Field label="Requests at a time">
            <input name="parallel" type="number" min="1" max="64" required value="2" />
          </Field>
          <Field label="Credentials (.creds)" hint="They say what this tab may do">
            <input name="creds" type="file" />
          </Field>
          <Field label="or a user">
            <input name="user" autocomplete="username" value={usual("user")} />
          </Field>
          <Field label="and a password">
            <input name="password" type="password" autocomplete="current-password" />
          </Field>
        </fieldset>
        <div class="row wide">
          <button type="submit" class="primary" disabled={isBusy}>
            Start
          </button>
          <button type="button" disabled={!isBusy} onClick={() => send(null)}>
            Stop
          </button>
        </div>
        <div class="wide" role="status" data-state={state.is}>
          <Shown state={state} />
        </div>
      </form>
    </div>
  );
}

function Field(props: { label: string; hint?: string; children: JSX.Element }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is the child
    <label class="field">
      <span class="field-label">{props.label}</span>
      {props.children}
      {props.hint && <span class="hint">{props.hint}</span>}
    </label>
  );
}

function Shown({ state }: { state: TabState }): JSX.Element | null {
  if (state.is === "idle") return null;
  if (state.is === "connecting") return <p>Connecting to NATS</p>;
  if (state.is === "loading") return <Progress share={state.share} label="Opening the model" />;
  if (state.is === "stopping") return <p>Stopping when the running requests are done</p>;
  if (state.is === "failed") return <p role="alert">{state.why}</p>;
  const speed = state.tokensPerSecond > 0 ? `, ${state.tokensPerSecond.toFixed(1)} tokens/s` : "";
  return (
    <p>
      Serving as worker {state.worker} on {state.threads}{" "}
      {state.threads === 1 ? "thread" : "threads"}: {state.running} running, {state.answered}{" "}
      answered{speed}
    </p>
  );
}

/** A string: a sentence that names the missing field. */
async function choiceOf(form: FormData): Promise<TabChoice | string> {
  const text = (name: string): string => String(form.get(name) ?? "").trim();
  const file = (name: string): File | undefined => {
    const found = form.get(name);
    return found instanceof File && found.size > 0 ? found : undefined;
  };
  const model = file("file") ?? text("model");
  if (model === "") return "Choose a model file, or type the address of one.";
  return {
    ...{ model, name: text("name"), cluster: text("cluster"), group: text("group") },
    ...{ user: text("user"), password: String(form.get("password") ?? "") },
    creds: await file("creds")?.text(),
    parallel: Number(text("parallel")),
  };
}

begin(<WorkerPage />);

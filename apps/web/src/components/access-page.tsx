// Shown instead of the app if the server refuses access: explains how to get in, with a field for the link, the token
// or the admin key. The pasted secret is sent to the server once, which sets a cookie in this browser.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { sentence } from "../api.ts";
import { type AccessNeed, client } from "../state/connection.ts";
import { Mark } from "./icon.tsx";

const texts: Readonly<Record<AccessNeed, { title: string; how: string; label: string }>> = {
  token: {
    title: "Open Lantern with its link",
    how: "Your conversations and models are private, so Lantern asks for the link that it printed when it started: it ends in ?token= and a long code. Open that link from the terminal, or paste it here. The link stays the same, unless the server was started with --new-token.",
    label: "Link or token",
  },
  key: {
    title: "This Lantern has an admin key",
    how: "Conversations and models are private here. Enter the admin key that the server was started with (--admin-key, or LANTERN_ADMIN_KEY). An API key is not enough.",
    label: "Admin key",
  },
  local: {
    title: "This Lantern is managed on its own machine",
    how: "Conversations and models can be seen only on the machine that runs this server, at an address such as http://127.0.0.1:8080. Whoever runs it can allow other machines with --admin-key. The APIs for programs work from here.",
    label: "",
  },
};

export function AccessPage({ need }: { need: AccessNeed }): JSX.Element {
  const { title, how, label } = texts[need];
  const [given, setGiven] = useState("");
  const [problem, setProblem] = useState("");
  const enter = async (): Promise<void> => {
    const secret = secretIn(given);
    try {
      if (!/^[\x20-\x7e]+$/.test(secret)) throw new Error(`This is no ${label.toLowerCase()}.`);
      await client.login(secret);
      location.reload();
    } catch (error) {
      setProblem(sentence(error));
    }
  };
  return (
    <main class="access">
      <div class="stack">
        <span class="brand">
          <Mark /> Lantern
        </span>
        <h1>{title}</h1>
        <p>{how}</p>
        {label !== "" && (
          <form
            class="stack"
            onSubmit={(event) => {
              event.preventDefault();
              void enter();
            }}
          >
            <label class="field">
              <span class="field-label">{label}</span>
              <input
                type="password"
                autocomplete="off"
                value={given}
                onInput={(event) => setGiven(event.currentTarget.value)}
              />
            </label>
            {problem !== "" && <p role="alert">{problem}</p>}
            <div class="row end">
              <button type="submit" class="primary" disabled={given.trim() === ""}>
                Open
              </button>
            </div>
          </form>
        )}
      </div>
    </main>
  );
}

/** The token of a pasted link; any other text unchanged. */
function secretIn(text: string): string {
  return /[?&]token=([^&#\s]+)/.exec(text)?.[1] ?? text.trim();
}

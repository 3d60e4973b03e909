// The interface of a client of `lantern launch`: one record in clients/, one line in clients/table.ts. A client is configured by, in this
// order of preference: variables and arguments of its process; a file of Lantern's own that it is told to read; its user's configuration.

import type { ConfigFormat } from "./merge.ts";
import type { Setting } from "./settings.ts";

export interface Client {
  /** What one types: "claude". */
  readonly name: string;
  readonly aliases?: readonly string[];
  readonly title: string;
  readonly summary: string;
  /** Programs, by preference: names in PATH. */
  readonly programs: readonly string[];
  /** Further places where its installers put it: absolute paths. */
  readonly places?: (place: Place) => readonly string[];
  /** What to type to install it; where there is no such line, a page. */
  readonly install: string;
  /** Tokens of context: with fewer than `least` it cannot work, and `wanted` is what a session needs. */
  readonly context: { readonly least: number; readonly wanted: number };
  /** The version that was really run against Lantern; absent: known from documents and sources only. */
  readonly ran?: string;
  /** Its program returns at once (a window, a service), so the server stays until Ctrl-C. */
  readonly stays?: true;
  setup(server: Endpoint, place: Place): Setup;
}

/** What the client is to use. */
export interface Endpoint {
  /** "http://127.0.0.1:8080" */
  readonly url: string;
  /** The server's API key; undefined: it needs none. */
  readonly key: string | undefined;
  readonly model: string;
  readonly contextSize: number;
}

/** This machine, as far as configurations depend on it. */
export interface Place {
  readonly home: string;
  readonly system: "linux" | "darwin" | "win32";
  env(name: string): string | undefined;
  join(...parts: string[]): string;
  /** A folder of Lantern's own for this client. */
  readonly own: string;
}

export interface Setup {
  /** Variables of its process; undefined: this one is removed. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Arguments before those of the user. No secrets: every user of the machine can read them. */
  readonly args?: readonly string[];
  /** Arguments where the user gives none. */
  readonly usual?: readonly string[];
  /** Its user's configuration, and files in `place.own`. */
  readonly files?: readonly ConfigChange[];
  /** What one has to do in the program itself. */
  readonly next?: string;
}

export interface ConfigChange {
  readonly path: string;
  readonly format: ConfigFormat;
  readonly set: readonly Setting[];
}

/** The variable in which the key is handed over where the client takes the name of one. */
export const keyVariable = "LANTERN_LAUNCH_KEY";

/** For clients that insist on a key though the server needs none. */
const noKey = "lantern";

export const keyOf = ({ key }: Endpoint): string => key ?? noKey;

/** The variable above, for its process. */
export const keyEnv = (server: Endpoint): Record<string, string> => ({
  [keyVariable]: keyOf(server),
});

/** An answer takes a part of the context; the rest is for the prompt. */
export const answerTokens = ({ contextSize }: Endpoint): number =>
  Math.min(8192, Math.floor(contextSize / 4));

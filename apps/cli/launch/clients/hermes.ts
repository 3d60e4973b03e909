// Hermes Agent, in a terminal and as an app: a provider and the model in its configuration, which names a variable for the key.

import {
  type Client,
  type Endpoint,
  keyEnv,
  keyVariable,
  type Place,
  type Setup,
} from "../client.ts";

function setup(server: Endpoint, { home, system, env, join }: Place): Setup {
  const { url, model, contextSize } = server;
  const usual =
    system === "win32"
      ? join(env("LOCALAPPDATA") ?? join(home, "AppData", "Local"), "hermes")
      : join(home, ".hermes");
  return {
    env: keyEnv(server),
    files: [
      {
        path: join(env("HERMES_HOME") || usual, "config.yaml"),
        format: "yaml",
        set: [
          { at: ["model", "provider"], value: "custom:lantern" },
          { at: ["model", "default"], value: model },
          { at: ["model", "base_url"], value: `${url}/v1` },
          { at: ["model", "context_length"], value: contextSize },
          { at: ["providers", "lantern", "api"], value: `${url}/v1` },
          { at: ["providers", "lantern", "transport"], value: "chat_completions" },
          { at: ["providers", "lantern", "key_env"], value: keyVariable },
        ],
      },
    ],
  };
}

const common = {
  install: "https://hermes-agent.nousresearch.com/docs/getting-started/installation/",
  context: { least: 65_536, wanted: 65_536 },
  setup,
} as const;

export const hermes: Client = {
  ...common,
  name: "hermes",
  title: "Hermes Agent",
  summary: "Nous Research's agent, which learns from its work",
  programs: ["hermes"],
  places: ({ home, join }) => [join(home, ".local", "bin", "hermes")],
};

export const hermesDesktop: Client = {
  ...common,
  name: "hermes-desktop",
  title: "Hermes Desktop",
  summary: "the app of Hermes Agent",
  programs: ["hermes"],
  places: ({ home, join }) => [join(home, ".local", "bin", "hermes")],
  stays: true,
  setup: (server, place) => ({ ...setup(server, place), args: ["desktop"] }),
};

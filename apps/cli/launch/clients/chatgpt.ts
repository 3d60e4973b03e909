// The ChatGPT app (before: the Codex app), which reads the configuration of Codex. A window has no variables of ours, so a key would
// have to be in the file.

import { type Client, keyOf } from "../client.ts";

export const chatgpt: Client = {
  name: "chatgpt",
  aliases: ["codex-app", "codex-desktop", "codex-gui"],
  title: "ChatGPT app",
  summary: "OpenAI's desktop app, with Codex in it",
  programs: [],
  places: ({ system, home, env, join }) =>
    system === "darwin"
      ? ["/Applications", join(home, "Applications")].flatMap((folder) =>
          ["ChatGPT", "Codex"].map((name) => join(folder, `${name}.app/Contents/MacOS/${name}`)),
        )
      : system === "win32"
        ? ["ChatGPT", "Codex"].map((name) =>
            join(env("LOCALAPPDATA") ?? home, "Programs", name, `${name}.exe`),
          )
        : [],
  install: "https://chatgpt.com/download (macOS and Windows)",
  context: { least: 16_384, wanted: 65_536 },
  stays: true,
  setup(server, { home, join }) {
    const { url, key, model, contextSize } = server;
    const provider = ["model_providers", "lantern"];
    return {
      files: [
        {
          path: join(home, ".codex", "config.toml"),
          format: "toml",
          set: [
            { at: ["model"], value: model },
            { at: ["model_provider"], value: "lantern" },
            { at: ["model_context_window"], value: contextSize },
            { at: [...provider, "name"], value: "Lantern" },
            { at: [...provider, "base_url"], value: `${url}/v1` },
            { at: [...provider, "wire_api"], value: "responses" },
            ...(key === undefined
              ? []
              : [{ at: [...provider, "experimental_bearer_token"], value: keyOf(server) }]),
          ],
        },
      ],
      next: "Restart the app if it was running.",
    };
  },
};

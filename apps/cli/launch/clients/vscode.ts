// Visual Studio Code: a server of Ollama's protocol in the list of language models of Copilot Chat. It sends no key.

import { UsageError } from "../../../../src/index.ts";
import type { Client } from "../client.ts";

export const vscode: Client = {
  name: "vscode",
  aliases: ["code"],
  title: "Visual Studio Code",
  summary: "the chat of Microsoft's editor",
  programs: ["code"],
  places: ({ system, env, home, join }) =>
    system === "darwin"
      ? ["/Applications/Visual Studio Code.app/Contents/Resources/app/bin/code"]
      : system === "win32"
        ? [join(env("LOCALAPPDATA") ?? home, "Programs", "Microsoft VS Code", "bin", "code.cmd")]
        : ["/usr/bin/code", "/snap/bin/code"],
  install: "https://code.visualstudio.com",
  context: { least: 16_384, wanted: 32_768 },
  stays: true,
  setup({ url, key, model }, { system, env, home, join }) {
    if (key !== undefined) {
      throw new UsageError(
        "launch: Visual Studio Code sends no key to a server of Ollama's protocol, and the server needs one. Start a server without a key, or none: launch starts its own",
      );
    }
    const settings =
      system === "darwin"
        ? join(home, "Library", "Application Support")
        : system === "win32"
          ? (env("APPDATA") ?? join(home, "AppData", "Roaming"))
          : env("XDG_CONFIG_HOME") || join(home, ".config");
    return {
      files: [
        {
          path: join(settings, "Code", "User", "chatLanguageModels.json"),
          format: "json",
          set: [
            { at: [{ key: "name", is: "Lantern" }, "vendor"], value: "ollama" },
            { at: [{ key: "name", is: "Lantern" }, "url"], value: url },
          ],
        },
      ],
      next: `Open the chat and choose ${model} in its list of models ("Other models" has it at first). Restart the editor if it was running.`,
    };
  },
};

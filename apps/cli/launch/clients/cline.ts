// Cline's command line: the provider "ollama" in its settings, chosen by arguments. There is no variable for the address.

import { type Client, keyOf } from "../client.ts";

export const cline: Client = {
  name: "cline",
  title: "Cline",
  summary: "an open-source coding agent",
  programs: ["cline"],
  install: "npm install -g cline",
  context: { least: 16_384, wanted: 65_536 },
  setup(server, { home, join }) {
    const { url, key, model } = server;
    const provider = ["providers", "ollama"];
    const settings = [...provider, "settings"];
    return {
      files: [
        {
          path: join(home, ".cline", "data", "settings", "providers.json"),
          format: "json",
          set: [
            { at: ["version"], value: 1 },
            { at: [...settings, "provider"], value: "ollama" },
            { at: [...settings, "model"], value: model },
            { at: [...settings, "baseUrl"], value: `${url}/v1` },
            ...(key === undefined ? [] : [{ at: [...settings, "apiKey"], value: keyOf(server) }]),
            { at: [...provider, "tokenSource"], value: "manual" },
            { at: [...provider, "updatedAt"], value: "2026-01-01T00:00:00.000Z" },
          ],
        },
      ],
      args: ["-P", "ollama", "-m", model],
    };
  },
};

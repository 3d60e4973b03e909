// Factory's Droid: a model of one's own in its settings, which may name a variable for the key.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const droid: Client = {
  name: "droid",
  title: "Droid",
  summary: "Factory's coding agent; it needs a Factory account",
  programs: ["droid"],
  install: "npm install -g droid",
  context: { least: 16_384, wanted: 65_536 },
  setup(server, { home, join }) {
    const { url, model } = server;
    const own = ["customModels", { key: "id", is: "custom:lantern-0" }] as const;
    return {
      env: keyEnv(server),
      files: [
        {
          path: join(home, ".factory", "settings.json"),
          format: "json",
          set: [
            { at: [...own, "model"], value: model },
            { at: [...own, "displayName"], value: `${model} (Lantern)` },
            { at: [...own, "baseUrl"], value: `${url}/v1` },
            { at: [...own, "apiKey"], value: `\${${keyVariable}}` },
            { at: [...own, "provider"], value: "generic-chat-completion-api" },
            { at: [...own, "maxOutputTokens"], value: answerTokens(server) },
            { at: [...own, "noImageSupport"], value: true },
            { at: ["sessionDefaultSettings", "model"], value: "custom:lantern-0" },
            { at: ["sessionDefaultSettings", "reasoningEffort"], value: "none" },
          ],
        },
      ],
    };
  },
};

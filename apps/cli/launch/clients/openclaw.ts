// OpenClaw: a provider and the default model in its configuration, which names a variable for the key.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const openclaw: Client = {
  name: "openclaw",
  aliases: ["clawdbot", "moltbot"],
  title: "OpenClaw",
  summary: "a personal assistant; run `openclaw onboard` once before",
  programs: ["openclaw", "clawdbot"],
  install: "npm install -g openclaw",
  context: { least: 32_768, wanted: 65_536 },
  setup(server, { home, env, join }) {
    const { url, model, contextSize } = server;
    const provider = ["models", "providers", "lantern"];
    return {
      env: keyEnv(server),
      files: [
        {
          path: env("OPENCLAW_CONFIG_PATH") || join(home, ".openclaw", "openclaw.json"),
          format: "json",
          set: [
            { at: ["models", "mode"], value: "merge" },
            { at: [...provider, "baseUrl"], value: `${url}/v1` },
            { at: [...provider, "apiKey"], value: `\${${keyVariable}}` },
            { at: [...provider, "api"], value: "openai-completions" },
            {
              at: [...provider, "models"],
              value: [
                {
                  id: model,
                  name: model,
                  reasoning: false,
                  input: ["text"],
                  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
                  contextWindow: contextSize,
                  maxTokens: answerTokens(server),
                },
              ],
            },
            { at: ["agents", "defaults", "model", "primary"], value: `lantern/${model}` },
          ],
        },
      ],
      usual: ["tui", "--local"],
    };
  },
};

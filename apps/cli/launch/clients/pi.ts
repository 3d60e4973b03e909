// pi: a provider in its list of models; provider and model are chosen by arguments. Its package has a document about models.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const pi: Client = {
  name: "pi",
  title: "pi",
  summary: "a small coding agent with extensions",
  programs: ["pi"],
  install: "npm install -g @earendil-works/pi-coding-agent",
  context: { least: 8_192, wanted: 65_536 },
  ran: "0.74.2",
  setup(server, { home, env, join }) {
    const { url, model, contextSize } = server;
    const folder = env("PI_CODING_AGENT_DIR") || join(home, ".pi", "agent");
    const provider = ["providers", "lantern"];
    return {
      env: keyEnv(server),
      files: [
        {
          path: join(folder, "models.json"),
          format: "json",
          set: [
            { at: [...provider, "baseUrl"], value: `${url}/v1` },
            { at: [...provider, "api"], value: "openai-completions" },
            { at: [...provider, "apiKey"], value: keyVariable },
            {
              at: [...provider, "compat"],
              value: { supportsDeveloperRole: false, supportsReasoningEffort: false },
            },
            {
              at: [...provider, "models"],
              value: [{ id: model, contextWindow: contextSize, maxTokens: answerTokens(server) }],
            },
          ],
        },
      ],
      args: ["--provider", "lantern", "--model", model],
    };
  },
};

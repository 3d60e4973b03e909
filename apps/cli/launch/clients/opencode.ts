// opencode: a whole configuration in a variable, which it merges with its own. The key is in another, which the first names.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const opencode: Client = {
  name: "opencode",
  title: "opencode",
  summary: "Anomaly's open-source coding agent",
  programs: ["opencode"],
  places: ({ home, join }) => [join(home, ".opencode", "bin", "opencode")],
  install: "npm install -g opencode-ai",
  context: { least: 16_384, wanted: 65_536 },
  ran: "1.18.33",
  setup(server) {
    const { url, model, contextSize } = server;
    const config = {
      $schema: "https://opencode.ai/config.json",
      provider: {
        lantern: {
          npm: "@ai-sdk/openai-compatible",
          name: "Lantern",
          options: { baseURL: `${url}/v1`, apiKey: `{env:${keyVariable}}` },
          models: {
            [model]: {
              name: model,
              tool_call: true,
              limit: { context: contextSize, output: answerTokens(server) },
            },
          },
        },
      },
      model: `lantern/${model}`,
      small_model: `lantern/${model}`,
    };
    return { env: { ...keyEnv(server), OPENCODE_CONFIG_CONTENT: JSON.stringify(config) } };
  },
};

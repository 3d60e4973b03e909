// GitHub Copilot CLI with a provider of one's own: `copilot help providers` lists these variables.

import { answerTokens, type Client } from "../client.ts";

export const copilot: Client = {
  name: "copilot",
  aliases: ["copilot-cli"],
  title: "GitHub Copilot CLI",
  summary: "GitHub's coding agent",
  programs: ["copilot"],
  places: ({ home, join }) => [join(home, ".local", "bin", "copilot")],
  install: "npm install -g @github/copilot",
  context: { least: 32_768, wanted: 65_536 },
  setup(server) {
    const { url, key, model, contextSize } = server;
    const output = answerTokens(server);
    return {
      env: {
        COPILOT_PROVIDER_BASE_URL: `${url}/v1`,
        COPILOT_PROVIDER_TYPE: "openai",
        COPILOT_PROVIDER_WIRE_API: "completions",
        COPILOT_PROVIDER_API_KEY: key,
        COPILOT_PROVIDER_MAX_PROMPT_TOKENS: String(contextSize - output),
        COPILOT_PROVIDER_MAX_OUTPUT_TOKENS: String(output),
        COPILOT_MODEL: model,
        COPILOT_OFFLINE: "true",
      },
    };
  },
};

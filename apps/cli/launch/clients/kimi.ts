// Kimi Code: everything in variables, which describe a model of one's own.

import { answerTokens, type Client, keyOf } from "../client.ts";

export const kimi: Client = {
  name: "kimi",
  aliases: ["kimi-code"],
  title: "Kimi Code",
  summary: "Moonshot's coding agent",
  programs: ["kimi"],
  places: ({ home, join }) => [join(home, ".local", "bin", "kimi")],
  install: "npm install -g @moonshot-ai/kimi-code",
  context: { least: 16_384, wanted: 65_536 },
  setup(server) {
    const { url, model, contextSize } = server;
    return {
      env: {
        KIMI_MODEL_NAME: model,
        KIMI_MODEL_PROVIDER_TYPE: "openai",
        KIMI_MODEL_BASE_URL: `${url}/v1`,
        KIMI_MODEL_API_KEY: keyOf(server),
        KIMI_MODEL_MAX_CONTEXT_SIZE: String(contextSize),
        KIMI_MODEL_MAX_OUTPUT_SIZE: String(answerTokens(server)),
        KIMI_MODEL_CAPABILITIES: "tool_use",
        KIMI_CODE_NO_AUTO_UPDATE: "1",
      },
    };
  },
};

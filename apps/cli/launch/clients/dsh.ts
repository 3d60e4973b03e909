// DeepSeek Harness: settings of Lantern's own, which a patch on its command line puts in the place of the user's.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const dsh: Client = {
  name: "dsh",
  aliases: ["deepseek-harness"],
  title: "DeepSeek Harness",
  summary: "DeepSeek's harness for agents, in a browser",
  programs: ["dsh"],
  install: "npm install -g @deepseek-ai/dsh",
  context: { least: 16_384, wanted: 65_536 },
  setup(server, { own, join }) {
    const { url, model, contextSize } = server;
    const settings = join(own, "settings.yml");
    const patch = join(own, "patch.yml");
    return {
      env: keyEnv(server),
      files: [
        {
          path: settings,
          format: "yaml",
          set: [
            { at: ["agent-default-model"], value: { provider: "lantern", model } },
            {
              at: ["llm-pi-ai", "providers", "lantern"],
              value: {
                displayName: "Lantern",
                apiKeyEnv: keyVariable,
                api: "openai-completions",
                baseURL: `${url}/v1`,
                models: [
                  {
                    id: model,
                    name: model,
                    input: ["text"],
                    contextWindow: contextSize,
                    maxTokens: answerTokens(server),
                  },
                ],
              },
            },
          ],
        },
        // JSON is YAML: a list at the top.
        {
          path: patch,
          format: "json",
          set: [{ at: [{ key: "id", is: "settings" }, "config"], value: { path: settings } }],
        },
      ],
      args: ["web", "--patch", patch],
    };
  },
};

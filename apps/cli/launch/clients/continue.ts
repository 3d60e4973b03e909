// Continue's command line: a configuration of Lantern's own (JSON is YAML), which an argument names; it reads the key from a variable.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const continueCli: Client = {
  name: "continue",
  aliases: ["cn"],
  title: "Continue CLI",
  summary: "Continue's coding agent",
  programs: ["cn"],
  install: "npm install -g @continuedev/cli",
  context: { least: 8_192, wanted: 65_536 },
  ran: "1.5.47",
  setup(server, { own, join }) {
    const { url, model, contextSize } = server;
    const file = join(own, "config.yaml");
    return {
      env: keyEnv(server),
      files: [
        {
          path: file,
          format: "json",
          set: [
            { at: ["name"], value: "Lantern" },
            { at: ["version"], value: "1.0.0" },
            { at: ["schema"], value: "v1" },
            {
              at: ["models"],
              value: [
                {
                  name: model,
                  provider: "openai",
                  model,
                  apiBase: `${url}/v1`,
                  apiKey: `\${{ secrets.${keyVariable} }}`,
                  capabilities: ["tool_use"],
                  roles: ["chat", "edit", "apply"],
                  defaultCompletionOptions: {
                    contextLength: contextSize,
                    maxTokens: answerTokens(server),
                  },
                },
              ],
            },
          ],
        },
      ],
      args: ["--config", file],
    };
  },
};

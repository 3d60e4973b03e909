// Oh My Pi: as pi, in YAML.

import { answerTokens, type Client, keyEnv, keyVariable } from "../client.ts";

export const omp: Client = {
  name: "omp",
  aliases: ["oh-my-pi"],
  title: "Oh My Pi",
  summary: "a coding agent with an editor's tools, made from pi",
  programs: ["omp"],
  places: ({ home, join }) => [
    join(home, ".local", "bin", "omp"),
    join(home, ".bun", "bin", "omp"),
  ],
  install: "bun install -g @oh-my-pi/pi-coding-agent",
  context: { least: 16_384, wanted: 65_536 },
  setup(server, { home, env, join }) {
    const { url, model, contextSize } = server;
    const folder = env("PI_CODING_AGENT_DIR") || join(home, ".omp", "agent");
    const provider = ["providers", "lantern"];
    return {
      env: keyEnv(server),
      files: [
        {
          path: join(folder, "models.yml"),
          format: "yaml",
          set: [
            { at: [...provider, "baseUrl"], value: `${url}/v1` },
            { at: [...provider, "api"], value: "openai-completions" },
            { at: [...provider, "apiKey"], value: keyVariable },
            {
              at: [...provider, "models"],
              value: [
                {
                  id: model,
                  name: model,
                  input: ["text"],
                  contextWindow: contextSize,
                  maxTokens: answerTokens(server),
                },
              ],
            },
          ],
        },
      ],
      args: ["--model", `lantern/${model}`],
    };
  },
};

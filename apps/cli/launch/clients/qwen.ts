// Qwen Code with an OpenAI-compatible server: three variables and its kind of login.

import { type Client, keyOf } from "../client.ts";

export const qwen: Client = {
  name: "qwen",
  aliases: ["qwen-code"],
  title: "Qwen Code",
  summary: "Qwen's coding agent",
  programs: ["qwen"],
  places: ({ home, join }) => [join(home, ".local", "bin", "qwen")],
  install: "npm install -g @qwen-code/qwen-code",
  context: { least: 24_576, wanted: 65_536 },
  setup(server) {
    const { url, model } = server;
    return {
      env: { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: keyOf(server), OPENAI_MODEL: model },
      args: ["--auth-type", "openai", "--model", model],
    };
  },
};

// Codex CLI: settings are arguments (-c), the key is in a variable that one of them names. Its configuration is not touched.

import { type Client, keyEnv, keyVariable } from "../client.ts";

export const codex: Client = {
  name: "codex",
  aliases: ["codex-cli"],
  title: "Codex CLI",
  summary: "OpenAI's coding agent",
  programs: ["codex"],
  install: "npm install -g @openai/codex",
  context: { least: 16_384, wanted: 65_536 },
  ran: "0.169.0",
  setup(server) {
    const { url, model, contextSize } = server;
    const settings: Record<string, string | number> = {
      model_provider: "lantern",
      "model_providers.lantern.name": "Lantern",
      "model_providers.lantern.base_url": `${url}/v1`,
      "model_providers.lantern.wire_api": "responses",
      "model_providers.lantern.env_key": keyVariable,
      "model_providers.lantern.stream_idle_timeout_ms": 3_600_000,
      model_context_window: contextSize,
      web_search: "disabled",
    };
    const flags = Object.entries(settings).flatMap(([key, value]) => [
      "-c",
      `${key}=${JSON.stringify(value)}`,
    ]);
    return { env: keyEnv(server), args: [...flags, "-m", model] };
  },
};

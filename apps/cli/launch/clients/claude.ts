// Claude Code: everything in variables. Documented at code.claude.com/docs (environment variables, LLM gateways).

import { type Client, keyOf } from "../client.ts";

export const claude: Client = {
  name: "claude",
  aliases: ["claude-code"],
  title: "Claude Code",
  summary: "Anthropic's coding agent",
  programs: ["claude"],
  places: ({ home, join }) => [
    join(home, ".local", "bin", "claude"),
    join(home, ".claude", "local", "claude"),
  ],
  install: "npm install -g @anthropic-ai/claude-code",
  context: { least: 32_768, wanted: 65_536 },
  setup(server) {
    const { url, model, contextSize } = server;
    return {
      env: {
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_AUTH_TOKEN: keyOf(server),
        ANTHROPIC_API_KEY: undefined, // it would be preferred, and asked about
        ANTHROPIC_MODEL: model,
        ANTHROPIC_DEFAULT_OPUS_MODEL: model,
        ANTHROPIC_DEFAULT_SONNET_MODEL: model,
        ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
        CLAUDE_CODE_SUBAGENT_MODEL: model,
        CLAUDE_CODE_AUTO_COMPACT_WINDOW: String(contextSize),
        CLAUDE_CODE_ATTRIBUTION_HEADER: "0", // it changes with every request, at the start of the prompt
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        API_TIMEOUT_MS: "3600000", // a long prompt takes minutes on a processor
      },
      args: ["--model", model],
    };
  },
};

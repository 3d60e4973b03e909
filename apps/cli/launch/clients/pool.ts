// Poolside's agent: an address and a key in variables.

import { type Client, keyOf } from "../client.ts";

export const pool: Client = {
  name: "pool",
  aliases: ["poolside"],
  title: "Poolside",
  summary: "Poolside's coding agent (not on Windows)",
  programs: ["pool"],
  install: "https://github.com/poolsideai/pool",
  context: { least: 16_384, wanted: 65_536 },
  setup(server) {
    const { url, model } = server;
    return {
      env: { POOLSIDE_STANDALONE_BASE_URL: `${url}/v1`, POOLSIDE_API_KEY: keyOf(server) },
      args: ["-m", model],
    };
  },
};

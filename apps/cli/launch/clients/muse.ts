// Muse Code: a folder of configuration of Lantern's own, so that the user's own Muse stays as it is. It can send no key.

import { UsageError } from "../../../../src/index.ts";
import { answerTokens, type Client } from "../client.ts";

export const muse: Client = {
  name: "muse",
  aliases: ["muse-code"],
  title: "Muse Code",
  summary: "Meta's coding agent (not on Windows)",
  programs: ["muse"],
  places: ({ home, join }) => [join(home, ".local", "bin", "muse")],
  install: "https://dev.meta.ai",
  context: { least: 16_384, wanted: 65_536 },
  setup(server, { own, join }) {
    const { url, key, model, contextSize } = server;
    if (key !== undefined) {
      throw new UsageError(
        "launch: Muse Code is told here to send no key, and the server needs one. Start a server without a key, or none: launch starts its own",
      );
    }
    return {
      env: { XDG_CONFIG_HOME: own },
      files: [
        {
          path: join(own, "muse", "settings.json"),
          format: "json",
          set: [
            { at: ["schema_version"], value: 1 },
            { at: ["provider"], value: "meta" },
            { at: ["model"], value: model },
            { at: ["endpoint_transport"], value: { base_url: `${url}/v1`, auth: "none" } },
            {
              at: ["model_catalog"],
              value: [
                {
                  model_id: model,
                  provider_id: "meta",
                  profile_id: "tbh",
                  display_label: model,
                  visibility: "visible",
                  display_order: 0,
                  is_default: true,
                  context_limit: contextSize,
                  output_limit: answerTokens(server),
                  description: "Served by Lantern",
                },
              ],
            },
          ],
        },
      ],
    };
  },
};

// Claude Desktop with a gateway of one's own: a profile, the list of profiles, and its mode. A window has no variables of ours, so the
// key is in the profile.

import { UsageError } from "../../../../src/index.ts";
import { type Client, keyOf, type Place } from "../client.ts";

/** Any id: this one is Lantern's, so that a second launch finds it. */
const profileId = "1a27e2a0-0000-4000-8000-00000000001a";

function folders({ system, env, home, join }: Place): { usual: string; gateway: string } {
  if (system === "linux") {
    throw new UsageError(
      "launch: Claude Desktop is for macOS and Windows. Use Claude Code: lantern launch claude",
    );
  }
  const base =
    system === "darwin"
      ? join(home, "Library", "Application Support")
      : (env("LOCALAPPDATA") ?? join(home, "AppData", "Local"));
  return { usual: join(base, "Claude"), gateway: join(base, "Claude-3p") };
}

export const claudeDesktop: Client = {
  name: "claude-desktop",
  aliases: ["claude-app"],
  title: "Claude Desktop",
  summary: "Anthropic's desktop app (macOS, Windows)",
  programs: [],
  places: ({ system, home, env, join }) =>
    system === "darwin"
      ? ["/Applications", join(home, "Applications")].map((folder) =>
          join(folder, "Claude.app/Contents/MacOS/Claude"),
        )
      : system === "win32"
        ? [join(env("LOCALAPPDATA") ?? home, "Programs", "Claude", "Claude.exe")]
        : [],
  install: "https://claude.com/download",
  context: { least: 32_768, wanted: 65_536 },
  stays: true,
  setup(server, place) {
    const { usual, gateway } = folders(place);
    const { join } = place;
    const library = join(gateway, "configLibrary");
    const mode = [{ at: ["deploymentMode"], value: "3p" }];
    return {
      files: [
        { path: join(usual, "claude_desktop_config.json"), format: "json", set: mode },
        { path: join(gateway, "claude_desktop_config.json"), format: "json", set: mode },
        {
          path: join(library, "_meta.json"),
          format: "json",
          set: [
            { at: ["appliedId"], value: profileId },
            { at: ["entries", { key: "id", is: profileId }, "name"], value: "Lantern" },
          ],
        },
        {
          path: join(library, `${profileId}.json`),
          format: "json",
          set: [
            { at: ["inferenceProvider"], value: "gateway" },
            { at: ["inferenceGatewayBaseUrl"], value: server.url },
            { at: ["inferenceGatewayApiKey"], value: keyOf(server) },
            { at: ["inferenceGatewayAuthScheme"], value: "bearer" },
          ],
        },
      ],
      next: "Restart the app if it was running.",
    };
  },
};

// Detects the platform: the only code that does. The other platform's file is never loaded.

import "./early-messages.ts";
import type { Platform } from "./platform.ts";

export async function currentPlatform(): Promise<Platform> {
  const isNode = typeof process !== "undefined" && process.versions?.node !== undefined;
  return isNode
    ? (await import("./node.ts")).nodePlatform
    : (await import("./browser.ts")).browserPlatform;
}

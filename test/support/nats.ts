// Tests that need a nats-server: skipped with a reason where it is not installed.

import { spawnSync } from "node:child_process";
import { describe } from "vitest";

export { type NatsCluster, startNats } from "./nats-servers.ts";

/** Why there is none; undefined: it is installed. */
const natsLacks: string | undefined =
  spawnSync("nats-server", ["--version"]).status === 0
    ? undefined
    : "nats-server is not installed (apt-get install nats-server)";

export function describeNats(title: string, body: () => void): void {
  if (natsLacks === undefined) return void describe(title, body);
  console.log(`${title}: skipped, ${natsLacks}`);
  describe.skip(`${title} [skipped: ${natsLacks}]`, body);
}

// Flags of `lantern serve` and `lantern worker` for a cluster (docs/use/cluster.md): the address of NATS, and the credentials of this client.
// Passwords and keys come from files or from the environment, never from flags, which other users of the machine can see.

import type { Command } from "commander";
import { UsageError } from "../../src/index.ts";
import type { NatsConnection } from "../cluster/peer.ts";
import type { CliContext } from "./command.ts";

export interface ClusterFlags {
  cluster?: string;
  clusterCreds?: string;
  clusterCa?: string;
  clusterCert?: string;
  clusterKey?: string;
}

export function addClusterFlags(command: Command): Command {
  return command
    .option(
      "--cluster <servers>",
      "the NATS servers that connect the machines of a cluster, as in nats://10.0.0.1:4222; several with commas: docs/use/cluster.md",
    )
    .option(
      "--cluster-creds <file>",
      "credentials for NATS, a .creds file or one with the seed of an nkey (default: LANTERN_CLUSTER_USER with LANTERN_CLUSTER_PASSWORD, or LANTERN_CLUSTER_TOKEN, if set)",
    )
    .option("--cluster-ca <file>", "the certificate authority that the NATS servers are checked by")
    .option("--cluster-cert <file>", "this machine's own certificate for NATS")
    .option("--cluster-key <file>", "the key of that certificate");
}

/** Connects with the flags and the environment. `role`: the client's name in NATS's own lists. */
export async function joinCluster(
  flags: ClusterFlags & { cluster: string },
  role: "gateway" | "worker",
  { terminal }: CliContext,
): Promise<NatsConnection> {
  const { clusterServers, connectNats } = await import("../cluster/connect.ts"); // other commands start without it
  const { clusterCa, clusterCert, clusterKey, clusterCreds } = flags;
  if ((clusterCert === undefined) !== (clusterKey === undefined)) {
    throw new UsageError(
      "flags: got one of --cluster-cert and --cluster-key, expected both or neither: a certificate is of no use without its key",
    );
  }
  for (const file of [clusterCa, clusterCert, clusterKey]) {
    if (file !== undefined) await terminal.readText(file); // errors of the file are reported here, with its name
  }
  const tls = {
    ...(clusterCa !== undefined && { caFile: clusterCa }),
    ...(clusterCert !== undefined && { certFile: clusterCert }),
    ...(clusterKey !== undefined && { keyFile: clusterKey }),
  };
  const usual = (name: string): string | undefined =>
    clusterCreds === undefined ? terminal.env(name) : undefined;
  return await connectNats({
    servers: clusterServers(flags.cluster),
    name: `lantern ${role}`,
    creds: clusterCreds === undefined ? undefined : await terminal.readText(clusterCreds),
    user: usual("LANTERN_CLUSTER_USER"),
    password: usual("LANTERN_CLUSTER_PASSWORD"),
    token: usual("LANTERN_CLUSTER_TOKEN"),
    tls: Object.keys(tls).length > 0 ? tls : undefined,
  });
}

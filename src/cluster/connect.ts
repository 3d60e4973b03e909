// Opens a connection to NATS. The packages are optional and loaded here, so nothing of them is read unless a cluster is used. What goes
// wrong names the servers, and never a password or a token.

import type { NatsConnection, NodeConnectionOptions } from "@nats-io/transport-node";
import { messageOf, SourceError, UsageError } from "../base/errors.ts";

export type { NatsConnection } from "@nats-io/transport-node";

export interface ClusterPlace {
  /** nats://host:port or tls://host:port, without user and password. */
  readonly servers: readonly string[];
  /** What the connection is called in NATS's own lists. */
  readonly name: string;
  /** The text of a .creds file (JWT and key), or the seed of an nkey. */
  readonly creds?: string | undefined;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  readonly token?: string | undefined;
  /** Files with the certificate authority, and with this client's certificate and key. */
  readonly tls?: { caFile?: string; certFile?: string; keyFile?: string } | undefined;
}

/** Checks the servers that a flag named, separated by commas. */
export function clusterServers(text: string): string[] {
  const servers = text.split(",").map((one) => one.trim());
  for (const server of servers) {
    const url = URL.canParse(server) ? new URL(server) : undefined;
    const isKnown = url?.protocol === "nats:" || url?.protocol === "tls:";
    if (url?.username || url?.password) {
      throw new UsageError(
        "--cluster: got an address with a user or a password, which other users of this machine can see. Use --cluster-creds FILE, or LANTERN_CLUSTER_USER and LANTERN_CLUSTER_PASSWORD",
      );
    }
    if (isKnown && url?.hostname) continue;
    throw new UsageError(
      `--cluster: got ${JSON.stringify(server)}, expected the address of a NATS server, as in nats://10.0.0.1:4222; several with commas`,
    );
  }
  return servers;
}

async function loadNats(): Promise<typeof import("@nats-io/transport-node")> {
  try {
    return await import("@nats-io/transport-node");
  } catch (error) {
    throw new UsageError(
      'a cluster needs the packages of NATS, which are not installed. "npm install @nats-io/transport-node @nats-io/jetstream" beside Lantern installs them',
      { cause: error },
    );
  }
}

/** Reconnects by itself, for as long as the process lives. */
export async function connectNats(place: ClusterPlace): Promise<NatsConnection> {
  const { connect, credsAuthenticator, nkeyAuthenticator } = await loadNats();
  const options: NodeConnectionOptions = {
    servers: [...place.servers],
    name: place.name,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 250,
    timeout: 5000,
    pingInterval: 5000,
    maxPingOut: 2,
    ...(place.creds !== undefined && {
      authenticator: isSeed(place.creds)
        ? nkeyAuthenticator(new TextEncoder().encode(place.creds.trim()))
        : credsAuthenticator(new TextEncoder().encode(place.creds)),
    }),
    ...(place.user !== undefined && { user: place.user }),
    ...(place.password !== undefined && { pass: place.password }),
    ...(place.token !== undefined && { token: place.token }),
    ...(place.tls && { tls: place.tls }),
  };
  try {
    return await connect(options);
  } catch (error) {
    throw new SourceError(
      `cluster: no connection to NATS at ${place.servers.join(", ")}: ${messageOf(error)}. Is nats-server running there, and may this user connect?`,
      { cause: error },
    );
  }
}

/** A user's nkey alone, without a JWT: the server's configuration has its public half. */
function isSeed(text: string): boolean {
  return /^\s*SU[A-Z2-7]{56}\s*$/.test(text);
}

/** A new id of a worker, a gateway or a call: one part of a subject. */
export function newPeerId(): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 20);
}

/** Refuses what NATS would refuse, with numbers: a connection is closed otherwise. */
export function checkPayload(connection: NatsConnection, bytes: Uint8Array, what: string): void {
  const most = connection.info?.max_payload ?? 2 ** 20;
  if (bytes.length + 1024 <= most) return;
  throw new UsageError(
    `cluster: ${what} takes ${bytes.length} bytes, but this NATS server carries messages of at most ${most}. Make it shorter, or raise max_payload in the server's configuration`,
  );
}

// Opens a connection to NATS, in Node. The packages are optional and loaded here, so none of them is read unless a cluster is used.

import { retry, type Waits } from "../../src/base/backoff.ts";
import { messageOf, UsageError } from "../../src/base/errors.ts";
import { checkPackage } from "../../src/platform/node-trusted-path.ts";
import { type ClusterPlace, connectionOptions, type NatsConnection, noConnection } from "./peer.ts";

export interface NodePlace extends ClusterPlace {
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

/** A server that ended during the handshake is waited for, some 20 s. */
const comingBack: Waits = { firstMs: 500, mostMs: 2000, tries: 12 };
const mostTimeouts = 3;

/** Whether a server had answered at this address: the error of NATS's client for a socket that was closed too early. */
function isBroken(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ECONNRESET" || code === "EPIPE" || /undefined error/.test(messageOf(error));
}

async function loadNats(): Promise<typeof import("@nats-io/transport-node")> {
  for (const name of ["@nats-io/transport-node", "@nats-io/jetstream"]) checkPackage(name);
  try {
    return await import("@nats-io/transport-node");
  } catch (error) {
    throw new UsageError(
      'a cluster needs the packages of NATS, which are not installed. "npm install @nats-io/transport-node @nats-io/jetstream" beside Lantern installs them',
      { cause: error },
    );
  }
}

export async function connectNats(place: NodePlace): Promise<NatsConnection> {
  const nats = await loadNats();
  const options = { ...connectionOptions(place, nats), ...(place.tls && { tls: place.tls }) };
  let wasThere = false;
  let timeouts = 0;
  try {
    return await retry(() => nats.connect(options), comingBack, {
      onFailure: (error) => {
        // A server that ended in the middle of the handshake, or is starting just now. Once it was there, it may come back.
        wasThere ||= isBroken(error);
        // NATS's client takes a server that ended after its first line for a slow one.
        const isLate = error instanceof nats.TimeoutError && ++timeouts < mostTimeouts;
        if (error instanceof nats.AuthorizationError || !(wasThere || isLate)) throw error;
      },
    });
  } catch (error) {
    throw noConnection(place, error);
  }
}

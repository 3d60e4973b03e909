// Opens a connection to NATS from a browser, over WebSocket: the only file for browsers alone. A page loads only @nats-io/nats-core of
// NATS's packages, which has nothing of Node's.

import { credsAuthenticator, nkeyAuthenticator, wsconnect } from "@nats-io/nats-core";
import { UsageError } from "../../src/base/errors.ts";
import { type ClusterPlace, connectionOptions, type NatsConnection, noConnection } from "./peer.ts";

export async function connectSocket(place: ClusterPlace): Promise<NatsConnection> {
  for (const server of place.servers) {
    const url = URL.canParse(server) ? new URL(server) : undefined;
    const isKnown = url?.protocol === "ws:" || url?.protocol === "wss:";
    if (isKnown && url?.hostname && url.username === "" && url.password === "") continue;
    throw new UsageError(
      "cluster: expected the address of a NATS server's WebSocket without user and password, as in wss://nats.example.org:8443; several with commas",
    );
  }
  try {
    return await wsconnect(connectionOptions(place, { credsAuthenticator, nkeyAuthenticator }));
  } catch (error) {
    throw noConnection(place, error);
  }
}

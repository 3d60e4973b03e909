// A proxy in front of a server that cuts each connection after so many messages of it, as a server does that is killed at that moment:
// every moment can be tried, one after the other, on a machine of any speed.

import { connect, createServer, type Socket } from "node:net";

export interface CuttingProxy {
  readonly port: number;
  /** Connections so far. */
  readonly count: number;
  /** The next connection is cut after this many pieces from either side, and those after it are not; undefined: none is cut. */
  cutAfter(pieces: number | undefined): void;
  /** Pieces that came over the newest connection. */
  readonly pieces: number;
  close(): void;
}

export async function cuttingProxy(port: number): Promise<CuttingProxy> {
  let limit: number | undefined;
  let pieces = 0;
  let count = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const most = limit;
    limit = undefined;
    pieces = 0;
    count++;
    const upstream = connect(port, "127.0.0.1");
    const ends = [client, upstream];
    const cut = (): void => {
      for (const end of ends) end.destroy();
    };
    for (const [at, end] of ends.entries()) {
      sockets.add(end);
      end.on("error", cut);
      end.on("close", () => {
        sockets.delete(end);
        cut();
      });
      end.on("data", (piece: Buffer) => {
        if (most !== undefined && pieces >= most) return cut();
        pieces++;
        ends[1 - at]!.write(piece);
      });
    }
    if (most === 0) cut();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return {
    port: typeof address === "object" && address ? address.port : 0,
    get count() {
      return count;
    },
    cutAfter(most) {
      limit = most;
    },
    get pieces() {
      return pieces;
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

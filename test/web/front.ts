// What may stand between a browser and the server: a proxy that changes headers, or a connection that is cut as when a server is killed.

import { createServer, request } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";

export interface Front extends AsyncDisposable {
  readonly url: string;
}

/** A proxy that changes the headers of what it passes on. */
export async function proxy(
  to: string,
  change: (headers: NodeJS.Dict<string | string[]>) => void,
): Promise<Front> {
  const server = createServer((incoming, outgoing) => {
    const { method, headers, url = "/" } = incoming;
    const asked = request(to + url, { method, headers }, (answer) => {
      const changed: NodeJS.Dict<string | string[]> = { ...answer.headers };
      change(changed);
      outgoing.writeHead(answer.statusCode!, changed as Record<string, string>);
      answer.pipe(outgoing);
    });
    asked.on("error", () => outgoing.destroy());
    outgoing.on("close", () => asked.destroy());
    incoming.pipe(asked);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A page of somebody else's. */
export async function foreignPage(html: string): Promise<Front> {
  const server = createServer((_, answer) => {
    answer.setHeader("content-type", "text/html");
    answer.end(html);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://localhost:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export interface Wire extends Front {
  /** No byte comes through any more, and every connection breaks. */
  cut(): void;
  mend(): void;
  /** What comes from now on goes there. */
  lead(to: string): void;
}

/** A connection that can be cut. */
export async function wire(to: string): Promise<Wire> {
  let { port } = new URL(to);
  const open = new Set<Socket>();
  let isCut = false;
  const server = createTcpServer((near) => {
    if (isCut) return void near.destroy();
    const far = connect(Number(port), "127.0.0.1");
    for (const socket of [near, far]) {
      open.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        open.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = (): void => {
    isCut = true;
    for (const socket of open) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    mend() {
      isCut = false;
    },
    lead(next) {
      port = new URL(next).port;
    },
    async [Symbol.asyncDispose]() {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

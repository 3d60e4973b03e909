// The file of a UNIX socket, before a server listens there: one that an ended program has left is removed, and one that somebody
// listens on is not. Node removes the file when the server is closed.

import { lstat, unlink } from "node:fs/promises";
import { connect } from "node:net";
import { UsageError } from "../base/errors.ts";

export async function removeStaleSocket(path: string): Promise<void> {
  if (path === "") {
    throw new UsageError(
      '--host: got "unix:" without a path, expected one, as in unix:/run/lantern.sock',
    );
  }
  const found = await lstat(path).catch(() => undefined);
  if (!found) return;
  if (!found.isSocket()) {
    throw new UsageError(
      `--host: "${path}" is there and is no socket, expected a path without a file. Choose another, or remove it`,
    );
  }
  if (await isAnswered(path)) {
    throw new UsageError(
      `--host: another program listens on "${path}". Choose another path, or end that program`,
    );
  }
  await unlink(path);
}

/** Whether a program accepts connections there; one that may not be asked counts as a program. */
async function isAnswered(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect({ path });
  socket.once("connect", () => resolve(true));
  socket.once("error", ({ code }: NodeJS.ErrnoException) =>
    resolve(code !== "ECONNREFUSED" && code !== "ENOENT"),
  );
  const answer = await promise;
  socket.destroy();
  return answer;
}

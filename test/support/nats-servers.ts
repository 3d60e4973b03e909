// Real nats-servers on loopback, alone or as a cluster of JetStream: for tests of apps/cluster (nats.ts) and for the scripts that measure it.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface NatsCluster {
  /** One address for each server. */
  readonly urls: readonly string[];
  /** kill -9 of one server. */
  kill(at: number): void;
  /** Stops it for a while: its connections stay open and nothing answers. */
  signal(at: number, signal: NodeJS.Signals): void;
  restart(at: number): Promise<void>;
  /** kill -9 of one server, which comes back without anything that it had stored. */
  wipe(at: number): Promise<void>;
  /** Of the servers that run. */
  pids(): number[];
  close(): void;
}

/** `nodes` servers with JetStream, each with a folder of its own. `host`: where clients reach them; `config`: a file of NATS. */
export async function startNats(
  nodes: number = 1,
  host: string = "127.0.0.1",
  config?: string,
): Promise<NatsCluster> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-nats-"));
  const ports = await freePorts(2 * nodes);
  const [clients, routes] = [ports.slice(0, nodes), ports.slice(nodes)];
  const running: (ChildProcess | undefined)[] = [];
  const start = (at: number): void => {
    const args = ["-a", host, "-p", String(clients[at]), "-js", "-n", `n${at}`];
    args.push("-sd", join(folder, String(at)));
    if (config !== undefined) args.push("-c", join(folder, "nats.conf"));
    if (nodes > 1) {
      args.push("--cluster_name", "test", "--cluster", `nats://127.0.0.1:${routes[at]}`);
      args.push("--routes", routes.map((port) => `nats://127.0.0.1:${port}`).join(","));
    }
    running[at] = spawn("nats-server", args, { stdio: "ignore" });
  };
  if (config !== undefined) writeFileSync(join(folder, "nats.conf"), config);
  for (let at = 0; at < nodes; at++) start(at);
  await Promise.all(clients.map(listening));
  return {
    urls: clients.map((port) => `nats://127.0.0.1:${port}`),
    kill: (at) => void running[at]?.kill("SIGKILL"),
    signal: (at, signal) => void running[at]?.kill(signal),
    async restart(at) {
      start(at);
      await listening(clients[at]!);
    },
    async wipe(at) {
      const server = running[at]!;
      const ended = new Promise((resolve) => server.once("exit", resolve));
      server.kill("SIGKILL");
      await ended;
      rmSync(join(folder, String(at)), { recursive: true, force: true, maxRetries: 5 });
      start(at);
      await listening(clients[at]!);
    },
    pids: () => running.flatMap((server) => server?.pid ?? []),
    close() {
      for (const server of running) server?.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Free ports, below those that the system gives to connections: one of these could take a port before its server has it. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      for (;;) {
        const server = createServer();
        const port = 10_000 + Math.floor(Math.random() * 20_000);
        const isFree = await new Promise<boolean>((resolve) => {
          server.once("error", () => resolve(false));
          server.listen(port, "127.0.0.1", () => resolve(true));
        });
        if (isFree) return server;
      }
    }),
  );
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

export async function listening(port: number): Promise<void> {
  for (let tries = 0; tries < 2400; tries++) {
    const isThere = await new Promise<boolean>((resolve) => {
      const socket = connect(port, "127.0.0.1", () => resolve(true)).on("error", () =>
        resolve(false),
      );
      socket.on("connect", () => socket.destroy());
    });
    if (isThere) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`nats-server does not listen on port ${port}`);
}

// `lantern serve --cluster` and `lantern worker` as processes, as users start them, on the NATS configuration of deploy/: TLS with certificates on
// both sides, and a user for each role. A gateway is killed (kill -9) in the middle of a batch, and another one goes on with it. And
// credentials of the other kinds: an nkey, and a .creds file whose JWT says what its user may do.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connectNats } from "../../apps/cluster/connect.ts";
import { ClusterWorker } from "../../apps/cluster/worker.ts";
import { open } from "../../src/index.ts";
import { certificates, hasOpenssl } from "../support/certificates.ts";
import { describeNats } from "../support/nats.ts";
import { freePorts, listening } from "../support/nats-servers.ts";
import { newUser, operatorFiles } from "../support/nats-users.ts";
import { skippedFor } from "../support/skips.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { answeredLines, batchOutput, completionLines, startBatch } from "./batch-requests.ts";
import { type Started, startLantern } from "./processes.ts";

const config = fileURLToPath(new URL("../../deploy/nats/nats.conf", import.meta.url));

describeNats("processes", () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-processes-"));
  const at = (name: string): string => join(folder, name);
  const running: { kill(signal: NodeJS.Signals): unknown }[] = [];
  let file: Awaited<ReturnType<typeof tinyFile>>;

  beforeAll(async () => {
    file = await tinyFile();
  });
  afterAll(() => {
    for (const one of running) one.kill("SIGKILL");
    file?.remove();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  async function startServer(args: readonly string[], port: number, env: object = {}) {
    const server: ChildProcess = spawn("nats-server", [...args, "-p", String(port)], {
      env: { ...process.env, ...env },
      stdio: "ignore",
    });
    running.push(server);
    await listening(port);
  }

  async function start(args: readonly string[], env: Record<string, string>): Promise<Started> {
    const started = await startLantern(args, { env: { ...env, LANTERN_DATA: folder } });
    running.push(started.child);
    return started;
  }

  const clientOf = ({ ready }: Started): OpenAI =>
    new OpenAI({ baseURL: `${ready.url}/v1`, apiKey: "none", maxRetries: 0 });
  const workerFlags = (name = "tiny"): string[] => [
    ...["-m", file.path, "-a", name, "-c", "512", "--threads", "1", "--parallel", "4"],
  ];
  const modelsOf = async (client: OpenAI): Promise<string[]> =>
    (await client.models.list()).data.map(({ id }) => id);

  describe.skipIf(!hasOpenssl)(
    `TLS and a password for each role${skippedFor("openssl is not installed", !hasOpenssl)}`,
    () => {
      const env = (role: "gateway" | "worker"): Record<string, string> => ({
        ...{ LANTERN_CLUSTER_USER: role, LANTERN_CLUSTER_PASSWORD: `${role}-secret` },
      });
      let cluster: string[];
      beforeAll(async () => {
        certificates(folder);
        const [port, webSocket] = await freePorts(2);
        await startServer(["-c", config, "-a", "127.0.0.1"], port!, {
          ...{ NATS_GATEWAY_PASSWORD: "gateway-secret", NATS_WORKER_PASSWORD: "worker-secret" },
          ...{ NATS_TAB_PASSWORD: "tab-secret", NATS_WEBSOCKET_PORT: String(webSocket) },
          ...{ NATS_NAME: "n1", NATS_STORE: at("js"), NATS_CA: at("ca.pem") },
          ...{ NATS_CERT: at("server.pem"), NATS_KEY: at("server.key") },
        });
        const tls = ["--cluster-ca", at("ca.pem"), "--cluster-cert", at("client.pem")];
        cluster = [
          "--cluster",
          `tls://localhost:${port}`,
          ...tls,
          "--cluster-key",
          at("client.key"),
        ];
      });
      const gateway = (name: string): Promise<Started> => {
        const store = ["--no-sessions", "--batches", at(`${name}.db`)];
        return start(["serve", ...cluster, "--port", "0", "--no-web", ...store], env("gateway"));
      };

      test("a gateway is killed in the middle of a batch: another one goes on with it, and every line is there once", async () => {
        const worker = await start(["worker", ...cluster, ...workerFlags()], env("worker"));
        const [first, second] = await Promise.all([gateway("first"), gateway("second")]);
        const [one, other] = [clientOf(first), clientOf(second)];
        await expect.poll(() => modelsOf(other)).toEqual(["tiny"]);
        const body = { model: "tiny", prompt: "the cat", max_tokens: 100, temperature: 0 };
        const chat = await other.completions.create({ ...body, max_tokens: 8 });
        const own = await open(file.path, { threads: 1, contextSize: 512, tuned: false });
        const expected = await own.generate("the cat", { maxTokens: 8, temperature: 0 }).result;
        await own.dispose();
        expect(chat.choices[0]!.text).toBe(expected.text);
        const lines = completionLines(200, { ...body, ignore_eos: true });
        const id = await startBatch(one, lines);
        await expect.poll(() => answeredLines(other, id), { interval: 20 }).toBeGreaterThan(0);
        first.child.kill("SIGKILL");
        await first.ended;
        expect((await other.batches.retrieve(id)).status).toBe("in_progress");
        const output = await batchOutput(other, id, lines);
        // Its old store comes back: it knows what became of its batch.
        const again = clientOf(await gateway("first"));
        expect(await batchOutput(again, id, lines)).toEqual(output);
        worker.child.kill("SIGTERM");
        await worker.ended;
        expect(worker.child.exitCode).toBe(0);
      }, 240_000);

      test("workers that reach no stream: a gateway takes lines for them, and what one does not end goes to another", async () => {
        const serving = await gateway("taker");
        const client = clientOf(serving);
        const own = await open(file.path, { threads: 1, contextSize: 512, tuned: false });
        const [caFile, certFile, keyFile] = ["ca.pem", "client.pem", "client.key"].map(at) as [
          ...[string, string, string],
        ];
        /** A worker with the credentials of a tab: of the answers that it begins, it ends as many. */
        const tab = async (most: number, modelId = "tabbed") => {
          const connection = await connectNats({
            ...{ servers: [cluster[1]!], name: "tab", user: "tab", password: "tab-secret" },
            tls: { caFile, certFile, keyFile },
          });
          let begun = 0;
          const model = new Proxy(own, {
            get(target, name) {
              const value: unknown = Reflect.get(target, name, target);
              if (name === "generate" && ++begun > most) void connection.close(); // as kill -9
              return typeof value === "function" ? value.bind(target) : value;
            },
          });
          const worker = new ClusterWorker({
            ...{ connection, model, modelId, group: "tabs", capacity: 2, version: "test" },
          });
          await worker.ready();
          return { connection, worker, begun: () => begun };
        };
        const first = await tab(7);
        await expect.poll(() => modelsOf(client)).toContain("tabbed");
        const body = { model: "tabbed", max_tokens: 24, temperature: 0, ignore_eos: true };
        const lines = completionLines(50, body);
        const id = await startBatch(client, lines);
        await first.connection.closed();
        await first.worker.stop(0);
        expect(first.begun()).toBeGreaterThan(7);
        expect((await client.batches.retrieve(id)).status).toBe("in_progress");
        const second = await tab(Infinity);
        const output = await batchOutput(client, id, lines);
        expect(second.begun()).toBeGreaterThanOrEqual(50 - 7);
        for (const [i, { body: asked }] of lines.entries()) {
          const { text } = await own.generate(asked.prompt, {
            ...{ maxTokens: 24, temperature: 0, ignoreEos: true },
          }).result;
          expect(output[i]!.response.body.choices[0]!.text).toBe(text);
        }
        // More tabs are closed with one line than workers may end with it.
        const [unlucky] = completionLines(1, { ...body, model: "closed" });
        let id2: string | undefined;
        for (let i = 0; i < 4; i++) {
          const closed = await tab(0, "closed");
          await expect.poll(() => modelsOf(client)).toContain("closed");
          id2 ??= await startBatch(client, [unlucky!]);
          await closed.connection.closed();
          await closed.worker.stop(0);
        }
        const third = await tab(Infinity, "closed");
        const [whole] = await batchOutput(client, id2!, [unlucky!]);
        expect(whole!.response.status_code).toBe(200);
        await third.worker.stop(0);
        await third.connection.close();
        // An orderly end: the gateway has nothing of the queue in its hands.
        serving.child.kill("SIGTERM");
        await serving.ended;
        expect(serving.child.exitCode, serving.said.join("\n")).toBe(0);
        await second.worker.stop(0);
        await second.connection.close();
        await own.dispose();
      }, 240_000);

      test("a wrong password: an error that names the server and no secret", async () => {
        const wrong = { LANTERN_CLUSTER_USER: "worker", LANTERN_CLUSTER_PASSWORD: "guessed" };
        const failed = start(["worker", ...cluster, ...workerFlags()], wrong);
        await expect(failed).rejects.toThrow(/no connection to NATS at tls:\/\/localhost/);
        await expect(failed).rejects.not.toThrow(/guessed/);
      });
    },
  );

  test.each([
    ["an nkey", "seed"],
    ["a .creds file", "creds"],
  ] as const)("%s instead of a password", async (_, kind) => {
    const [port] = await freePorts(1);
    const user = newUser();
    const facts =
      kind === "seed"
        ? { config: `authorization { users: [{ nkey: ${user.publicKey} }] }`, creds: user.seed }
        : operatorFiles({
            all: { publish: ["lantern.>", "_INBOX.>"], subscribe: ["lantern.>", "_INBOX.>"] },
          });
    writeFileSync(at(`${kind}.conf`), facts.config);
    const creds = typeof facts.creds === "string" ? facts.creds : facts.creds.all;
    writeFileSync(at(kind), creds, { mode: 0o600 });
    await startServer(["-c", at(`${kind}.conf`), "-a", "127.0.0.1"], port!);
    const cluster = ["--cluster", `nats://127.0.0.1:${port}`];
    await expect(start(["worker", ...cluster, ...workerFlags()], {})).rejects.toThrow(
      /no connection to NATS/,
    );
    const signedIn = [...cluster, "--cluster-creds", at(kind)];
    await start(["worker", ...signedIn, ...workerFlags("other")], {});
    const serve = [
      "serve",
      ...signedIn,
      "--port",
      "0",
      "--no-web",
      "--no-sessions",
      "--no-batches",
    ];
    const client = clientOf(await start(serve, {}));
    await expect.poll(() => modelsOf(client)).toEqual(["other"]);
    const body = { model: "other", prompt: "the cat", max_tokens: 4 };
    const { usage } = await client.completions.create(body);
    expect(usage!.completion_tokens).toBeGreaterThan(0);
  });
});

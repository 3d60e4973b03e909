// The files of deploy/ are what they say: manifests that belong together, flags that exist, no password in them; and on the NATS configuration
// each role can do what it must, over TLS, and nothing that is another's.

import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import type { Answerer } from "../../apps/batch/runner.ts";
import type { CliContext } from "../../apps/cli/command.ts";
import { commands } from "../../apps/cli/commands/table.ts";
import { connectNats } from "../../apps/cluster/connect.ts";
import { LineQueue } from "../../apps/cluster/line-queue.ts";
import { LineWorker } from "../../apps/cluster/line-worker.ts";
import { ClusterWorker } from "../../apps/cluster/worker.ts";
import { Workers } from "../../apps/cluster/workers.ts";
import type { Model } from "../../src/index.ts";
import { fakeInfo } from "../cluster/fake-info.ts";
import { certificates, hasOpenssl } from "../support/certificates.ts";
import { describeNats } from "../support/nats.ts";
import { freePorts, listening } from "../support/nats-servers.ts";
import { skippedFor } from "../support/skips.ts";

const deploy = fileURLToPath(new URL("../../deploy/", import.meta.url));
const read = (file: string): string => readFileSync(join(deploy, file), "utf8");

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  // biome-ignore lint/suspicious/noExplicitAny: what a manifest holds is what is checked
  spec: any;
}

function documents(file: string): Manifest[] {
  return parseAllDocuments(read(file)).map((one) => {
    expect(one.errors, file).toEqual([]);
    return one.toJS() as Manifest;
  });
}

/** The arguments name a command and flags that it has, each with as many values as it takes. */
async function expectCommand(args: readonly string[], from: string): Promise<void> {
  const [name, ...rest] = args;
  const known = commands.find((one) => one.name === name);
  expect(known, `${from}: ${name}`).toBeDefined();
  const command = new Command(name);
  (await known!.body()).define(command, {} as CliContext);
  for (let at = 0; at < rest.length; at++) {
    const flag = rest[at]!;
    const option = command.options.find(({ long, short }) => long === flag || short === flag);
    expect(option, `${from}: ${name} ${flag}`).toBeDefined();
    if (option!.required) at++;
  }
}

describe("kubernetes", () => {
  const files = readdirSync(join(deploy, "kubernetes"));
  const all = files.flatMap((file) => documents(`kubernetes/${file}`));
  const workloads = all.filter(({ spec }) => spec.template !== undefined);

  test("kinds and versions that there are", () => {
    expect(all.map(({ apiVersion, kind }) => `${apiVersion} ${kind}`).sort()).toEqual([
      "apps/v1 Deployment",
      "apps/v1 StatefulSet",
      "autoscaling/v2 HorizontalPodAutoscaler",
      "v1 Service",
    ]);
  });

  test.each(workloads.map((one) => [one.metadata.name, one] as const))(
    "%s",
    async (name, { spec }) => {
      expect(spec.template.metadata.labels).toMatchObject(spec.selector.matchLabels);
      const pod = spec.template.spec;
      const volumes = [...pod.volumes, ...(spec.volumeClaimTemplates ?? [])].map(
        (volume: { name?: string; metadata?: { name: string } }) =>
          volume.name ?? volume.metadata!.name,
      );
      for (const container of pod.containers) {
        await expectCommand(container.args, name);
        for (const { name: mounted } of container.volumeMounts) expect(volumes).toContain(mounted);
        for (const { name: variable, value } of container.env) {
          if (/PASSWORD|KEY|TOKEN/.test(variable)) expect(value, variable).toBeUndefined();
        }
      }
    },
  );

  test("the service and the autoscaler mean workloads that are here, and metrics that the server has", () => {
    const service = all.find(({ kind }) => kind === "Service")!;
    const labels = workloads.map(({ spec }) => spec.template.metadata.labels);
    expect(labels).toContainEqual(service.spec.selector);
    const scaler = all.find(({ kind }) => kind === "HorizontalPodAutoscaler")!;
    const { kind, name } = scaler.spec.scaleTargetRef;
    expect(workloads.map((one) => [one.kind, one.metadata.name])).toContainEqual([kind, name]);
    const routes = readFileSync(
      fileURLToPath(new URL("../../apps/server/routes/metrics.ts", import.meta.url)),
      "utf8",
    );
    for (const { external } of scaler.spec.metrics) {
      expect(routes).toContain(`"${external.metric.name}"`);
    }
  });
});

test("compose: commands that exist, services that depend on each other, no password", async () => {
  const [one] = parseAllDocuments(read("compose.yaml"));
  expect(one!.errors).toEqual([]);
  const { services, volumes } = one!.toJS() as {
    services: Record<string, { command: string[]; depends_on?: string[]; environment?: object }>;
    volumes: object;
  };
  expect(Object.keys(volumes)).toEqual(["nats", "gateway"]);
  for (const name of ["gateway", "worker"]) {
    await expectCommand(services[name]!.command, name);
    for (const other of services[name]!.depends_on!) expect(services).toHaveProperty(other);
    for (const [variable, value] of Object.entries(services[name]!.environment ?? {})) {
      if (/PASSWORD|KEY/.test(variable)) expect(value).toMatch(/^\$\{/);
    }
  }
});

test("systemd: each unit starts a command that exists, and keeps keys out of its flags", async () => {
  for (const role of ["worker", "gateway"]) {
    const unit = read(`systemd/lantern-${role}.service`);
    const [, line] = /^ExecStart=\S+ (.*)$/m.exec(unit)!;
    await expectCommand(line!.split(" "), role);
    expect(unit.match(/^\[.*\]$/gm)).toEqual(["[Unit]", "[Service]", "[Install]"]);
    expect(unit).not.toMatch(/^Environment=.*PASSWORD/m);
  }
});

test("the image: files that are copied exist, and it does not run as root", async () => {
  const text = read("Dockerfile");
  const root = fileURLToPath(new URL("../../", import.meta.url));
  for (const [, sources] of text.matchAll(/^COPY (?!--from)(.*) \S+$/gm)) {
    for (const source of sources!.split(" "))
      expect(readdirSync(root).concat("tools/runtime", ".")).toContain(source);
  }
  expect(text).toMatch(/^USER node$/m);
  const [, command] = /^CMD (.*)$/m.exec(text)!;
  await expectCommand(JSON.parse(command!) as string[], "Dockerfile");
});

describeNats("nats.conf", () => {
  test.skipIf(!hasOpenssl)(
    `each role can do its work over TLS, and not the other's${skippedFor("openssl is not installed", !hasOpenssl)}`,
    async () => {
      const folder = mkdtempSync(join(tmpdir(), "lantern-deploy-"));
      const at = (name: string): string => join(folder, name);
      certificates(folder);
      const [port, webSocket] = await freePorts(2);
      const secrets = {
        ...{ NATS_GATEWAY_PASSWORD: "one-secret", NATS_WORKER_PASSWORD: "other-secret" },
        ...{ NATS_TAB_PASSWORD: "third-secret", NATS_WEBSOCKET_PORT: String(webSocket) },
      };
      const place = { NATS_NAME: "n1", NATS_STORE: at("js"), NATS_CA: at("ca.pem") };
      const keys = { NATS_CERT: at("server.pem"), NATS_KEY: at("server.key") };
      const args = ["-c", join(deploy, "nats/nats.conf"), "-p", String(port), "-a", "127.0.0.1"];
      const said: string[] = [];
      const server = spawn("nats-server", args, {
        env: { ...process.env, ...secrets, ...place, ...keys },
      });
      server.stderr.on("data", (data) => said.push(String(data)));
      try {
        await listening(port!).catch((error: unknown) => {
          throw new Error(said.join(""), { cause: error });
        });
        const servers = [`tls://localhost:${port}`];
        const tls = { caFile: at("ca.pem"), certFile: at("client.pem"), keyFile: at("client.key") };
        const [asGateway, asWorker, asTab] = await Promise.all([
          connected({ servers, name: "g", user: "gateway", password: "one-secret", tls }),
          connected({ servers, name: "w", user: "worker", password: "other-secret", tls }),
          connected({ servers, name: "t", user: "tab", password: "third-secret", tls }),
        ]);
        const log: string[] = [];
        const own: Answerer = { parallel: () => 1, answer: () => Promise.reject(new Error("own")) };
        const answerer: Answerer = {
          parallel: () => 1,
          answer: async () => ({ status: 200, requestId: "", body: { text: "done" } }),
        };
        const note = { log: (line: string) => void log.push(line) };
        const lines = new LineWorker({
          connection: asWorker,
          modelId: "m",
          fingerprint: "f",
          capacity: () => 1,
          answerer,
          ...note,
        });
        const queue = new LineQueue({
          ...{ connection: asGateway, own, modelOf: () => "m", capacity: () => 1, ...note },
          fingerprintOf: async () => "f",
        });
        const body = new TextEncoder().encode("{}");
        const { signal } = new AbortController();
        const answer = await queue.answer("/v1/x", body, signal, { batch: "batch_1", place: 0 });
        expect(answer.body, log.join("\n")).toEqual({ text: "done" });
        await Promise.all([queue.close(), lines.stop()]);
        expect(log).toEqual([]);
        // What is the other's: refused by the server.
        await expect(violation(asWorker, "lantern.call.x")).resolves.toMatch(/lantern\.call\.x/);
        await expect(violation(asGateway, "lantern.beat.x")).resolves.toMatch(/lantern\.beat\.x/);
        // A tab answers what it is asked, and hears and says nothing else.
        const tab = { connection: asTab, model: fakeModel, modelId: "m", capacity: 1 };
        const [allowed, other] = ["tabs", undefined].map(
          (group) => new ClusterWorker({ ...tab, group, version: "test" }),
        );
        await allowed!.ready();
        await expect(other!.ready()).rejects.toThrow(/NATS refused .* lantern\.\w+\.\w+\. Use/);
        const workers = new Workers(asGateway);
        await expect.poll(() => workers.list().map(({ id }) => id)).toEqual([allowed!.id]);
        expect(await workers.call(allowed!.id, "countTokens", ["four"])).toBe(4);
        for (const subject of notForTabs) {
          await expect(violation(asTab, subject)).resolves.toContain(`"${subject}"`);
        }
        for (const subject of ["_INBOX.>", "lantern.line.>", "lantern.done.>", "lantern.>", ">"]) {
          await expect(violation(asTab, subject, "subscribe")).resolves.toContain(`"${subject}"`);
        }
        workers.close();
        await Promise.all([allowed!.stop(0), other!.stop(0)]);
        await Promise.all([asGateway.close(), asWorker.close(), asTab.close()]);
        const wrong = connectNats({
          servers,
          name: "x",
          user: "worker",
          password: "guess-it",
          tls,
        });
        await expect(wrong).rejects.toThrow(/no connection to NATS/);
        await expect(wrong).rejects.not.toThrow(/guess-it/);
      } finally {
        server.kill("SIGKILL");
        rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
      }
    },
  );
});

const fakeModel = {
  info: fakeInfo,
  countTokens: async (text: string) => text.length,
} as unknown as Model;

/** A tab computes lines of batches, and touches nothing of them: gateways take them, and write what it answers. */
const notForTabs: readonly string[] = [
  ...["lantern.beat.x", "lantern.call.x", "lantern.call.tabs.x", "lantern.answer.g.x", "_INBOX.x"],
  ...["lantern.line.bQ.b.0", "lantern.done.b.0", "lantern.dead.b.0", "lantern.gateway.x"],
  ...["$JS.API.INFO", "$JS.API.STREAM.INFO.LANTERN_LINES", "$JS.API.STREAM.CREATE.X"],
  ...["$JS.API.STREAM.MSG.GET.LANTERN_LINES", "$JS.API.STREAM.MSG.GET.LANTERN_ANSWERS"],
  ...["$JS.API.STREAM.MSG.DELETE.LANTERN_LINES", "$JS.API.STREAM.PURGE.LANTERN_LINES"],
  ...["$JS.API.CONSUMER.CREATE.LANTERN_LINES", "$JS.API.CONSUMER.MSG.NEXT.LANTERN_LINES.lines-bQ"],
  ...["$JS.ACK.LANTERN_LINES.lines-bQ.1.1.1.1.0", "$KV.LANTERN_BATCHES.x", "$O.LANTERN_FILES.x"],
];

/** What the server says of a message or a subscription that may not be. */
/** NATS's client waits 20 s, which a machine that is busy with other tests may take for three handshakes. */
async function connected(
  place: Parameters<typeof connectNats>[0],
  tries = 3,
): ReturnType<typeof connectNats> {
  try {
    return await connectNats(place);
  } catch (error) {
    if (tries === 1) throw error;
    return await connected(place, tries - 1);
  }
}

async function violation(
  connection: Awaited<ReturnType<typeof connectNats>>,
  subject: string,
  operation: "publish" | "subscribe" = "publish",
): Promise<string> {
  const statuses = connection.status();
  if (operation === "publish") connection.publish(subject);
  else connection.subscribe(subject, { callback: () => {} });
  for await (const status of statuses) {
    // Others speak over this connection, too: a worker that was refused tries its heartbeats again.
    const isOwn = status.type === "error" && String(status.error).includes(`"${subject}"`);
    if (isOwn) return String(status.error);
  }
  return "";
}

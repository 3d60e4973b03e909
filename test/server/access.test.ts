// Who may do what: every route's class, the token and the admin key, the page's cookie, and pages and machines that are not
// this one. The model is scripted; the sockets are real.

import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createAccess } from "../../apps/server/access.ts";
import { clientOf } from "../../apps/server/host-names.ts";
import {
  type ModelLibrary,
  type RunningServer,
  type StartOptions,
  startServer,
} from "../../apps/server/serve.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { skippedFor } from "../support/skips.ts";
import { scriptedModel } from "../web/scripted-model.ts";
import { until } from "./test-server.ts";

const servers: RunningServer[] = [];
let data: string;
beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "lantern-access-"));
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
  rmSync(data, { recursive: true });
});

const page = new TextEncoder().encode("<p>the app</p>");
const library = {
  list: async () => [],
  place: async () => {
    const none = { usedBytes: 0, freeBytes: 0, memoryBytes: 0, freeMemoryBytes: 0 };
    return { folder: "", ...none };
  },
  locate: async () => undefined,
} as Partial<ModelLibrary> as ModelLibrary;

async function serve(options: Partial<StartOptions> = {}): Promise<RunningServer> {
  const server = await startServer({
    models: { scripted: scriptedModel({ answer: () => "x" }) },
    version: "test",
    port: 0,
    graceMs: 0,
    library,
    sessions: () => openNodeDatabase(join(data, `${servers.length}.db`)),
    assets: new Map([["/", { bytes: page, type: "text/html; charset=utf-8" }]]),
    ...options,
  });
  servers.push(server);
  return server;
}

const sessions = "/lantern/v1/sessions";

/** The status and, where there is one, the code of the error. */
async function ask(
  url: string,
  headers: Record<string, string> = {},
  method: string = "GET",
): Promise<string> {
  const response = await fetch(url, { method, headers, redirect: "manual" });
  const isEndless = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
  if (isEndless) await response.body!.cancel();
  const text = isEndless ? "" : await response.text();
  const code = /"code":"(\w+)"/.exec(text)?.[1];
  return code === undefined ? `${response.status}` : `${response.status} ${code}`;
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

describe("classes", () => {
  test("every route has one: what is open, and what changes or tells what is this machine's", async () => {
    const { families } = await serve();
    const routes = families.flatMap((family) => family.routes);
    const of = (access: string): string[] =>
      [
        ...new Set(
          routes.filter((route) => route.access === access).map((r) => `${r.method} ${r.path}`),
        ),
      ].toSorted();
    expect(of("open")).toEqual(["GET /health", "GET /v1/health", "POST /lantern/v1/login"]);
    expect(of("admin")).toEqual([
      "DELETE /api/delete",
      "DELETE /lantern/v1/presets/:name",
      "DELETE /lantern/v1/runs/:id",
      "DELETE /lantern/v1/sessions/:id",
      "DELETE /lantern/v1/set-aside",
      "DELETE /models",
      "GET /api/blobs/:digest",
      "GET /lantern/v1/cache",
      "GET /lantern/v1/limits",
      "GET /lantern/v1/machine",
      "GET /lantern/v1/machine/usage",
      "GET /lantern/v1/models",
      "GET /lantern/v1/models/folder",
      "GET /lantern/v1/models/search",
      "GET /lantern/v1/models/variants",
      "GET /lantern/v1/presets",
      "GET /lantern/v1/profile",
      "GET /lantern/v1/quantize",
      "GET /lantern/v1/restore",
      "GET /lantern/v1/runs/:id",
      "GET /lantern/v1/runs/:id/events",
      "GET /lantern/v1/search",
      "GET /lantern/v1/sessions",
      "GET /lantern/v1/sessions/:id",
      "GET /lantern/v1/sessions/:id/export",
      "GET /lantern/v1/sessions/:id/messages",
      "GET /lantern/v1/set-aside",
      "GET /lantern/v1/tools",
      "PATCH /lantern/v1/sessions/:id",
      "POST /api/blobs/:digest",
      "POST /api/copy",
      "POST /api/create",
      "POST /api/pull",
      "POST /lantern/v1/cache/clear",
      "POST /lantern/v1/import",
      "POST /lantern/v1/machine/measure",
      "POST /lantern/v1/models/cancel",
      "POST /lantern/v1/models/delete",
      "POST /lantern/v1/models/download",
      "POST /lantern/v1/models/find",
      "POST /lantern/v1/models/link",
      "POST /lantern/v1/models/load",
      "POST /lantern/v1/models/plan",
      "POST /lantern/v1/models/unload",
      "POST /lantern/v1/quantize",
      "POST /lantern/v1/quantize/cancel",
      "POST /lantern/v1/restore",
      "POST /lantern/v1/runs/:id/cancel",
      "POST /lantern/v1/sessions",
      "POST /lantern/v1/sessions/:id/calls",
      "POST /lantern/v1/sessions/:id/continue",
      "POST /lantern/v1/sessions/:id/messages",
      "POST /lantern/v1/sessions/:id/summary",
      "POST /lantern/v1/tools/call",
      "POST /models",
      "PUT /lantern/v1/presets/:name",
    ]);
    const isClients = /^\w+ \/(v1|api|props|slots|models|metrics|completions?|infill)\b/;
    const others = of("use").filter((route) => !isClients.test(route));
    expect(others).toEqual([
      "GET /lantern/v1/status",
      "GET /lora-adapters",
      "POST /apply-template",
      "POST /chat/completions",
      "POST /chat/completions/input_tokens",
      "POST /detokenize",
      "POST /embedding",
      "POST /embeddings",
      "POST /lora-adapters",
      "POST /rerank",
      "POST /reranking",
      "POST /responses",
      "POST /responses/input_tokens",
      "POST /tokenize",
    ]);
  });

  test("every admin route is refused without the token; what clients use is not", async () => {
    const { families, url } = await serve();
    for (const { method, path, access } of families.flatMap((family) => family.routes)) {
      const place = path.replaceAll(/:\w+(\{.+?\})?/g, "x");
      const answer = await ask(url + place, {}, method);
      const isRefused = answer === "401 admin_token_missing" || /^401 ?$/.test(answer);
      expect(isRefused, `${method} ${place}: ${answer}`).toBe(access === "admin");
    }
  });
});

describe("the token", () => {
  test("is random, and opens admin routes: as a header, and as a cookie for the page", async () => {
    const server = await serve();
    const { url, token, pageUrl } = server;
    expect(token).toMatch(/^[\da-f]{32,}$/);
    expect((await serve()).token).not.toBe(token);
    expect(pageUrl).toBe(`${url}/?token=${token}`);
    expect(await ask(url + sessions)).toBe("401 admin_token_missing");
    expect(await ask(url + sessions, bearer("wrong"))).toBe("401 admin_token_wrong");
    expect(await ask(url + sessions, bearer(token!))).toBe("200");
    expect(await ask(`${url}${sessions}?token=${token}`)).toBe("401 admin_token_missing");

    const opened = await fetch(`${pageUrl}&x=1`, { redirect: "manual" });
    expect([opened.status, opened.headers.get("location")]).toEqual([303, "/?x=1"]);
    const cookie = opened.headers.get("set-cookie")!;
    expect(cookie).toMatch(
      new RegExp(`^lantern-${server.port}=[\\da-f]+; Path=/; HttpOnly; SameSite=Strict$`),
    );
    expect(cookie).not.toContain(token);
    const sent = { cookie: `other=1; ${cookie.split(";")[0]}` };
    expect(await ask(url + sessions, sent)).toBe("200");
    // Another port of this host cannot hide it behind one of its own.
    const hidden = `lantern-${server.port}=other; ${sent.cookie}; lantern-${server.port}=`;
    expect(await ask(url + sessions, { cookie: hidden })).toBe("200");
    expect(await ask(url + sessions, { cookie: sent.cookie.replace(/.$/, "x") })).toBe(
      "401 admin_token_wrong",
    );
    const wrong = await fetch(`${url}/?token=wrong`, { redirect: "manual" });
    expect([wrong.status, wrong.headers.get("set-cookie")]).toEqual([303, null]);
    expect(await (await fetch(url)).text()).toBe("<p>the app</p>");
  });

  test("another server's cookie, on the same host, is not this one's", async () => {
    const [a, b] = [await serve(), await serve()];
    const opened = await fetch(a.pageUrl, { redirect: "manual" });
    const cookie = opened.headers.get("set-cookie")!.split(";")[0]!;
    expect(await ask(a.url + sessions, { cookie })).toBe("200");
    expect(await ask(b.url + sessions, { cookie })).toBe("401 admin_token_missing");
    const renamed = cookie.replace(String(a.port), String(b.port));
    expect(await ask(b.url + sessions, { cookie: renamed })).toBe("401 admin_token_wrong");
  });

  test("the page can bring it itself", async () => {
    const { url, token } = await serve();
    const login = (key: string): Promise<Response> =>
      fetch(`${url}/lantern/v1/login`, { method: "POST", headers: bearer(key) });
    const wrong = await login("wrong");
    expect([wrong.status, wrong.headers.get("set-cookie")]).toEqual([401, null]);
    expect(await wrong.text()).toContain("in the address that the server prints");
    const right = await login(token!);
    expect(right.status).toBe(200);
    const cookie = right.headers.get("set-cookie")!.split(";")[0]!;
    expect(await ask(url + sessions, { cookie })).toBe("200");
  });

  test("a page of another origin cannot use the cookie, whatever --cors says", async () => {
    const { url, pageUrl, token, port } = await serve({ corsOrigins: ["*"] });
    const opened = await fetch(pageUrl, { redirect: "manual" });
    const cookie = opened.headers.get("set-cookie")!.split(";")[0]!;
    const own = { cookie, origin: url, "sec-fetch-site": "same-origin" };
    expect(await ask(url + sessions, own)).toBe("200");
    const port2 = { cookie, origin: "http://127.0.0.1:1", "sec-fetch-site": "same-site" };
    expect(await ask(url + sessions, port2)).toBe("401 admin_token_wrong");
    const get = raw(port, `GET ${sessions} HTTP/1.1`, [
      `Host: 127.0.0.1:${port}`,
      `Cookie: ${cookie}`,
      "Sec-Fetch-Site: cross-site",
    ]);
    expect(await get).toMatch(/^HTTP\/1.1 401/);
    expect(await ask(url + sessions, { ...bearer(token!), origin: "http://127.0.0.1:1" })).toBe(
      "200",
    );
  });

  test("opens what needs an API key, too; an API key does not open admin routes", async () => {
    const { url, token } = await serve({ apiKeys: ["a", "b"] });
    expect(await ask(`${url}/v1/models`)).toBe("401 invalid_api_key");
    for (const key of ["a", "b", token!])
      expect(await ask(`${url}/v1/models`, bearer(key))).toBe("200");
    expect(await ask(url + sessions, bearer("b"))).toBe("401 admin_token_wrong");
    expect(await ask(url + sessions, { "x-api-key": token! })).toBe("200");
  });
});

describe("a secret that is kept", () => {
  const [secret, other] = ["0123456789".repeat(4), "f".repeat(40)];
  const open = async (url: string): Promise<string> =>
    (await fetch(url, { redirect: "manual" })).headers.get("set-cookie")!;
  const pair = (setCookie: string): string => setCookie.split(";")[0]!;

  test("is the token of every start, and its cookie is good at the next, on any port", async () => {
    const first = await serve({ secret });
    expect(first.token).toBe(secret);
    const cookie = await open(first.pageUrl);
    expect(cookie).toMatch(
      /^lantern-[\da-f]{12}=[\da-f]{40}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=7776000$/,
    );
    expect(cookie).not.toContain(secret.slice(0, 12));
    await servers.pop()!.stop();
    const second = await serve({ secret });
    expect(second.pageUrl).toBe(`${second.url}/?token=${secret}`);
    expect(await ask(second.url + sessions, { cookie: pair(cookie) })).toBe("200");
    // The page renews it; without it, or with another, there is nothing to renew.
    const page = await fetch(second.url, { headers: { cookie: pair(cookie) } });
    expect([page.status, page.headers.get("set-cookie")]).toEqual([200, cookie]);
    for (const wrong of ["", pair(cookie).replace(/.$/, "x")]) {
      const { headers } = await fetch(second.url, { headers: { cookie: wrong } });
      expect(headers.get("set-cookie")).toBeNull();
    }
    const far = {
      cookie: pair(cookie),
      origin: "http://127.0.0.1:1",
      "sec-fetch-site": "same-site",
    };
    expect((await fetch(second.url, { headers: far })).headers.get("set-cookie")).toBeNull();
  });

  test("another secret, or another admin key, lets no earlier cookie in, and takes no place of it", async () => {
    const options: Partial<StartOptions>[] = [
      { secret },
      { secret: other },
      { secret, adminKey: "master" },
      { secret, adminKey: "newer" },
    ];
    const names = new Set<string>();
    const jar: string[] = [];
    for (const each of options) {
      const { url, token } = await serve(each);
      expect(await ask(url + sessions, { cookie: jar.join("; ") })).toMatch(/^401 .*_missing$/);
      const headers = bearer(token ?? each.adminKey!);
      const login = await fetch(`${url}/lantern/v1/login`, { method: "POST", headers });
      jar.push(pair(login.headers.get("set-cookie")!));
      names.add(jar.at(-1)!.split("=")[0]!);
    }
    expect(names.size).toBe(options.length);
    // A browser sends them all to all.
    for (const { url } of servers)
      expect(await ask(url + sessions, { cookie: jar.join("; ") })).toBe("200");
  });

  test("opens nothing where there is no token, and is not good from elsewhere", async () => {
    const cookie = pair(await open((await serve({ secret })).pageUrl));
    const without = await serve({ secret, token: false });
    const proxied = { cookie, "x-forwarded-for": "203.0.113.1" };
    expect(await ask(without.url + sessions, proxied)).toBe("403 admin_local_only");
    expect(await ask(`${without.url}${sessions}`, bearer(secret))).toBe("200"); // as without any
    const access = createAccess({ apiKeys: [], adminKey: undefined, token: secret, secret });
    const visitor = { headers: new Headers({ cookie }), address: "192.0.2.7", isLocal: false };
    await expect(access.check({ ...visitor, isOwnPage: true }, "admin")).rejects.toThrow();
    expect(await access.login({ ...visitor, isOwnPage: true }, "cookie")).toBeUndefined();
  });
});

describe("without a token", () => {
  test("being on this machine is enough: not behind a proxy, not for pages of others", async () => {
    const { url, pageUrl, token } = await serve({ token: false, corsOrigins: ["*"] });
    expect([token, pageUrl]).toEqual([undefined, url]);
    expect(await ask(url + sessions)).toBe("200");
    expect(await ask(url + sessions, { origin: url })).toBe("200");
    const refused = "403 admin_local_only";
    expect(await ask(url + sessions, { "x-forwarded-for": "203.0.113.1" })).toBe(refused);
    expect(await ask(url + sessions, { origin: "https://evil.example" })).toBe(refused);
    expect(await ask(`${url}/v1/models`, { origin: "https://evil.example" })).toBe("200");
  });

  test("an API key is still needed where there is one", async () => {
    const { url } = await serve({ token: false, apiKeys: ["a"] });
    expect(await ask(url + sessions)).toBe("401 invalid_api_key");
    expect(await ask(url + sessions, bearer("a"))).toBe("200");
  });
});

/** An address of this machine that others know. */
const outside = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === "IPv4" && !one.internal)?.address;

describe("the admin key", () => {
  test("opens admin routes, and nothing else does", async () => {
    const { url, token, pageUrl } = await serve({ adminKey: "master", apiKeys: ["a"] });
    expect([token, pageUrl]).toEqual([undefined, url]);
    expect(await ask(url + sessions)).toBe("401 admin_key_missing");
    expect(await ask(url + sessions, bearer("a"))).toBe("401 admin_key_wrong");
    expect(await ask(url + sessions, bearer("master"))).toBe("200");
    expect(await ask(`${url}/v1/models`, bearer("master"))).toBe("200");
    // Addresses are kept in histories and logs: a key does not belong there.
    const inAddress = await fetch(`${url}/?token=master`, { redirect: "manual" });
    expect(inAddress.headers.get("set-cookie")).toBeNull();
  });
});

describe("other machines", () => {
  // A client that is not on this machine is hard to come by on one: the app is asked with another's address.
  test("only the admin key counts for them; the token does not", async () => {
    const { createApp } = await import("../../apps/server/app.ts");
    const from = async (server: RunningServer, headers: Record<string, string>) => {
      const app = createApp(server.context, { families: server.families });
      const request = new Request(`http://192.0.2.1${sessions}`, {
        headers: { host: "192.0.2.1", ...headers },
      });
      return (await app(request, { address: "192.0.2.7", isLocal: false })).status;
    };
    const withToken = await serve();
    expect(await from(withToken, bearer(withToken.token!))).toBe(403);
    expect(await from(await serve({ token: false }), {})).toBe(403);
    const withKey = await serve({ adminKey: "master" });
    expect(await from(withKey, {})).toBe(401);
    expect(await from(withKey, bearer("master"))).toBe(200);
  });

  test.skipIf(outside === undefined)(
    `this machine is itself on its other addresses, too${skippedFor("it has no other address", outside === undefined)}`,
    async () => {
      const { port, token, pageUrl } = await serve({ host: "0.0.0.0" });
      expect(pageUrl).toContain(`http://127.0.0.1:${port}/?token=`);
      const url = `http://${outside}:${port}${sessions}`;
      expect(await ask(url, bearer(token!))).toBe("200");
      expect(await ask(url)).toBe("401 admin_token_missing");
    },
  );
});

/** What a socket gets for a request without a body. */
async function raw(port: number, line: string, headers: readonly string[]): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1" });
  socket.write(`${[line, "Connection: close", ...headers].join("\r\n")}\r\n\r\n`);
  let text = "";
  for await (const piece of socket) text += piece;
  return text;
}

describe("fairness", () => {
  test("whoever makes up keys or addresses is still one client", async () => {
    const { createApp } = await import("../../apps/server/app.ts");
    const everybody = Promise.withResolvers<void>(); // the first answer waits until all have asked
    const slow = scriptedModel({ answer: () => "ab", before: () => everybody.promise });
    const { context, families } = await serve({ models: { slow }, parallel: 1, queue: 20 });
    const app = createApp(context, { families });
    const done: string[] = [];
    const generate = async (who: string, address: string, key?: string): Promise<void> => {
      const headers = { host: "localhost", ...(key !== undefined && bearer(key)) };
      const body = JSON.stringify({ prompt: who, max_tokens: 2 });
      const request = new Request("http://localhost/v1/completions", {
        method: "POST",
        headers,
        body,
      });
      const response = await app(request, { address, isLocal: false });
      expect(response.status).toBe(200);
      await response.text();
      done.push(who);
    };
    const all = [0, 1, 2, 3].map((i) => generate("flood", "192.0.2.7", `made up ${i}`));
    for (const i of [1, 2, 3, 4]) all.push(generate("flood6", `2001:db8:0:1::${i}`));
    await until("the floods wait", () => context.queue.waiting === 7);
    all.push(generate("victim", "192.0.2.8"), generate("victim6", "2001:db8:0:2::1"));
    await until("the victims wait", () => context.queue.waiting === 9);
    everybody.resolve();
    await Promise.all(all);
    expect(done.slice(0, 4)).toEqual(["flood", "flood6", "victim", "victim6"]);
  });

  test("a key that was accepted is a client, wherever it comes from", async () => {
    const access = createAccess({ apiKeys: ["a", "b"], adminKey: "m", token: undefined });
    const client = (key: string, address: string): Promise<string> =>
      access.check(
        { headers: new Headers(bearer(key)), address, isLocal: false, isOwnPage: true },
        "use",
      );
    expect(await client("a", "192.0.2.1")).toBe(await client("a", "192.0.2.2"));
    expect(await client("a", "192.0.2.1")).not.toBe(await client("b", "192.0.2.1"));
    expect(await client("m", "192.0.2.1")).not.toBe(await client("a", "192.0.2.1"));
    await expect(client("c", "192.0.2.1")).rejects.toThrow("the API key is wrong");
  });

  test("the page is a client of its own, beside other programs of its machine", async () => {
    const access = createAccess({ apiKeys: [], adminKey: undefined, token: "t" });
    const visitor = (headers: object) => ({
      ...{ headers: new Headers({ host: "localhost", ...headers }), address: "127.0.0.1" },
      ...{ isLocal: true, isOwnPage: true },
    });
    const cookie = (await access.login(visitor({}), { token: "t" }))!.split(";")[0]!;
    expect(await access.check(visitor({ cookie }), "use")).toBe("admin");
    expect(await access.check(visitor({ cookie: `${cookie}x` }), "use")).toBe("loopback");
    expect(await access.check(visitor({}), "use")).toBe("loopback");
  });

  test.each([
    ["127.0.0.1", "loopback"],
    ["127.9.9.9", "loopback"],
    ["::1", "loopback"],
    ["::ffff:127.0.0.1", "loopback"],
    ["::ffff:192.0.2.7", "192.0.2.7"],
    ["2001:db8:0:1:ffff:1:2:3", "2001:db8:0:1"],
    ["2001:db8::3", "2001:db8:0:0"],
    ["fe80::1%eth0", "fe80:0:0:0"],
    ["unknown", "unknown"],
  ])("%s is %s", (address, client) => expect(clientOf(address)).toBe(client));
});

describe("the Host header", () => {
  const line = "GET /v1/models HTTP/1.1";

  test.each(["127.0.0.1", "0.0.0.0"])(
    "on %s: addresses, this machine's names and --allow-host pass, others do not",
    async (host) => {
      const allowedHosts = ["Box.Example.org.", "box", "other.example:99"];
      const { port } = await serve({ host, allowedHosts });
      const status = async (headers: string[], first: string = line): Promise<string> =>
        /^HTTP\/1\.1 (\d+)/.exec(await raw(port, first, headers))![1]!;
      for (const name of [
        ...["localhost", "LocalHost.", "127.0.0.1", "127.0.0.1.", "10.1.2.3", "255.255.255.255"],
        ...["[::1]", "[FE80::1]", "[::ffff:7f00:1]", "box", "BOX.example.org", "other.example"],
      ]) {
        expect(await status([`Host: ${name}`]), name).toBe("200");
        expect(await status([`Host: ${name}:${port}`]), name).toBe("200");
      }
      for (const name of [
        ...["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"],
        ...[
          "256.1.1.1",
          "1.2.3",
          "[::1].evil.example",
          "[evil]",
          "box.evil.example",
          "example.org",
        ],
        ...["localhost, evil.example", "evil.example:80@localhost", "localhost/", ""],
      ]) {
        expect(await status([`Host: ${name}`]), name).toMatch(/^40[03]$/);
      }
      expect(await status([])).toBe("400");
      expect(await status([], "GET /v1/models HTTP/1.0")).toBe("400");
      expect(await status(["Host: localhost", "Host: evil.example"])).toMatch(/^(400|403|200)$/);
      expect(await status(["Host: evil.example", "Host: localhost"])).toMatch(/^40[03]$/);
    },
  );

  test("a whole URL in the request counts as well", async () => {
    const { port } = await serve({ host: "0.0.0.0" });
    const status = async (target: string, host: string): Promise<string> =>
      (await raw(port, `GET ${target}/v1/models HTTP/1.1`, [`Host: ${host}`])).slice(9, 12);
    expect(await status(`http://localhost:${port}`, "localhost")).toBe("200");
    expect(await status("http://evil.example", "localhost")).toBe("403");
    expect(await status("http://localhost", "evil.example")).toBe("403");
  });

  test("a page that rebinds its name is refused everywhere, its preflight and the app's files included", async () => {
    const { port, token } = await serve({ host: "0.0.0.0", corsOrigins: ["http://evil.example"] });
    const rebound = [
      `Host: evil.example:${port}`,
      `Origin: http://evil.example:${port}`,
      `Authorization: Bearer ${token}`,
    ];
    for (const first of [
      `GET ${sessions}`,
      "GET /",
      "GET /health",
      `OPTIONS ${sessions}`,
      "GET /none",
    ]) {
      const answer = await raw(port, `${first} HTTP/1.1`, rebound);
      expect(answer, first).toMatch(/^HTTP\/1\.1 403/);
      expect(answer).toContain("--allow-host");
      expect(answer).not.toMatch(/access-control-allow-origin|the app/i);
    }
  });
});

// How a server is reached: HTTPS, a UNIX socket, a prefix, files of the user's own, pages of other origins.
// Held against: Node's fetch, undici and node:https, certificates of openssl, and what the system says of the socket's file.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, fetch as undiciFetch } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StartOptions } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { staticFolder } from "../../src/platform/node-static.ts";
import { tlsFault } from "../../src/platform/node-tls.ts";
import { modelId, post, prompt, serveModel } from "./test-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-reach-"));
let model: Model;
const log: string[] = [];
beforeAll(async () => {
  model = await open(modelId, { threads: 1, parallel: 2 });
});
afterAll(async () => {
  await model.dispose();
  rmSync(folder, { recursive: true });
  expect(log).toEqual([]);
});

async function served<T>(options: Partial<StartOptions>, work: (url: string) => Promise<T>) {
  const server = await serveModel(model, log, options);
  try {
    return await work(server.url);
  } finally {
    await server.stop();
  }
}

/** A certificate that signs itself, for localhost and 127.0.0.1. */
function certificate(name: string): { key: string; cert: string } {
  const [key, cert] = [join(folder, `${name}.key`), join(folder, `${name}.crt`)];
  const names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
  const of = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const args = ["req", "-x509", ...of, "-subj", `/CN=${name}`, "-addext", names];
  execFileSync("openssl", [...args, "-keyout", key, "-out", cert], { stdio: "ignore" });
  const read = (path: string) => execFileSync("cat", [path], { encoding: "utf8" });
  return { key: read(key), cert: read(cert) };
}

describe("HTTPS", () => {
  test("answers clients that trust its certificate, and no others", async () => {
    const tls = certificate("one");
    await served({ tls }, async (url) => {
      expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
      const dispatcher = new Agent({ connect: { ca: tls.cert } });
      const body = JSON.stringify({ model: modelId, prompt, max_tokens: 2 });
      const headers = { "content-type": "application/json" };
      const ask = { method: "POST", headers, body, dispatcher };
      const answer = await undiciFetch(`${url}/v1/completions`, ask);
      expect(answer.status).toBe(200);
      await answer.text();
      await dispatcher.close();
      await expect(fetch(`${url}/health`)).rejects.toThrow();
      await expect(fetch(url.replace("https:", "http:"))).rejects.toThrow(); // no plain HTTP there
      const protocol = await new Promise((resolve, reject) => {
        get(`${url}/health`, { ca: tls.cert }, (response) => {
          resolve((response.socket as { getProtocol?(): string }).getProtocol?.());
          response.resume();
        }).on("error", reject);
      });
      expect(protocol).toBe("TLSv1.3");
    });
  });

  test("what is wrong with a key or a certificate has a sentence", () => {
    const [one, two] = [certificate("one"), certificate("two")];
    const locked = execFileSync(
      "openssl",
      ["pkey", "-in", join(folder, "one.key"), "-aes256", "-passout", "pass:secret"],
      { encoding: "utf8" },
    );
    expect(tlsFault(one.key, one.cert)).toBeUndefined();
    expect(tlsFault(one.key, one.cert + two.cert)).toBeUndefined(); // a chain
    expect(tlsFault(one.key, two.cert)).toMatchObject({ of: "both" });
    expect(tlsFault(one.cert, one.cert)).toMatchObject({ of: "key" });
    expect(tlsFault(one.key, one.key)).toMatchObject({ of: "cert" });
    expect(tlsFault(locked, one.cert)?.why).toContain("passphrase");
    expect(tlsFault(one.key.replace(/\n.{20}/, "\nAAAA"), one.cert)?.why).toContain("damaged");
    expect(tlsFault(one.key, one.cert.replace(/\n.{20}/, "\nAAAA"))?.why).toContain("damaged");
  });
});

describe("a UNIX socket", () => {
  const file = join(folder, "lantern.sock");
  const overSocket = async (path: string, headers: Record<string, string> = {}) => {
    const dispatcher = new Agent({ connect: { socketPath: file } });
    const answer = await undiciFetch(`http://localhost${path}`, { dispatcher, headers });
    const text = await answer.text();
    await dispatcher.close();
    return { status: answer.status, text };
  };

  test("answers there, and its file goes with the server", async () => {
    await served({ host: `unix:${file}` }, async (url) => {
      expect(url).toBe(`unix:${file}`);
      expect(await overSocket("/health")).toMatchObject({ status: 200 });
      // No browser gets there: a Host header says nothing.
      expect(await overSocket("/v1/models", { host: "anything.example" })).toMatchObject({
        status: 200,
      });
    });
    expect(existsSync(file)).toBe(false);
    await served({ host: file }, async (url) => expect(url).toBe(`unix:${file}`)); // by its name's end
  });

  test("a file that an ended server has left is replaced, one in use and one of something else are not", async () => {
    // A server that is killed leaves its file.
    const script = `require("node:net").createServer().listen(${JSON.stringify(file)}, () => process.kill(process.pid, "SIGKILL"))`;
    expect(() => execFileSync(process.execPath, ["-e", script])).toThrow();
    expect(existsSync(file)).toBe(true);
    await served({ host: file }, async () => {
      expect(await overSocket("/health")).toMatchObject({ status: 200 });
      await expect(served({ host: file }, async () => {})).rejects.toThrow(
        /another program listens on/,
      );
      expect(await overSocket("/health")).toMatchObject({ status: 200 });
    });
    writeFileSync(file, "mine");
    await expect(served({ host: file }, async () => {})).rejects.toThrow(
      /is there and is no socket/,
    );
    expect(existsSync(file)).toBe(true);
    rmSync(file);
  });
});

test("with a prefix, everything is behind it", async () => {
  await served({ apiPrefix: "/llm", corsOrigins: ["https://a.example"] }, async (url) => {
    expect(url).toMatch(/\/llm$/);
    const { origin } = new URL(url);
    expect((await fetch(`${url}/v1/models`)).status).toBe(200);
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect(
      (
        await post(`${url}/api/generate`, {
          model: modelId,
          prompt,
          stream: false,
          options: { num_predict: 1 },
        })
      ).status,
    ).toBe(200);
    for (const path of ["/v1/models", "/health", "/llmx/health", "/"]) {
      expect((await fetch(origin + path)).status, path).toBe(404);
    }
    const asked = await fetch(`${url}/v1/models`, {
      method: "OPTIONS",
      headers: { origin: "https://a.example", "access-control-request-method": "GET" },
    });
    expect(asked.headers.get("access-control-allow-origin")).toBe("https://a.example");
  });
});

test("a folder of files: those in it, but no hidden ones and nothing outside", async () => {
  const site = join(folder, "site");
  mkdirSync(join(site, "sub"), { recursive: true });
  mkdirSync(join(site, ".git"));
  writeFileSync(join(folder, "secret.txt"), "secret");
  writeFileSync(join(site, "index.html"), "<p>mine");
  writeFileSync(join(site, "sub", "a b.js"), "1");
  writeFileSync(join(site, ".env"), "secret");
  writeFileSync(join(site, ".git", "config"), "secret");
  symlinkSync(join(folder, "secret.txt"), join(site, "link.txt"));
  symlinkSync(join(site, ".env"), join(site, "env.txt"));
  symlinkSync("/etc", join(site, "etc"));
  const staticFiles = await staticFolder(site);
  await served({ staticFiles }, async (url) => {
    const page = await fetch(url);
    expect(await page.text()).toBe("<p>mine");
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(await (await fetch(`${url}/sub/a%20b.js`)).text()).toBe("1");
    expect(
      (await fetch(`${url}/sub/a%20b.js`, { method: "HEAD" })).headers.get("content-length"),
    ).toBe("1");
    expect((await fetch(`${url}/v1/models`)).status).toBe(200); // the APIs come first
    const port = Number(new URL(url).port);
    const paths = [
      "/.env",
      "/.git/config",
      "/%2egit/config",
      "/link.txt",
      "/env.txt",
      "/etc/passwd",
      "/sub",
      "/sub/",
      "/none",
      "/%ff",
    ];
    const climbing = [
      "/../secret.txt",
      "/sub/../../secret.txt",
      "/%2e%2e/secret.txt",
      "/..%2fsecret.txt",
      "/sub/..%5c..%5csecret.txt",
      "//etc/passwd",
      "/index.html%00.js",
    ];
    for (const path of [...paths, ...climbing]) {
      const text = await raw(port, path);
      expect(text, path).toMatch(/^HTTP\/1\.1 (404|400|403) /);
      expect(text, path).not.toContain("root:");
      expect(text, path).not.toMatch(/\r\n\r\nsecret/);
    }
  });
  await expect(staticFolder(join(site, "index.html"))).rejects.toThrow(
    /got a file, expected a folder/,
  );
  await expect(staticFolder(join(site, "none"))).rejects.toThrow(/expected a folder/);
});

/** The answer to a request whose path no client has tidied up. */
async function raw(port: number, path: string): Promise<string> {
  const { connect } = await import("node:net");
  return await new Promise((resolve, reject) => {
    let text = "";
    const socket = connect(port, "127.0.0.1", () =>
      socket.write(`GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n`),
    );
    socket.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
    });
    socket.on("close", () => resolve(text)).on("error", reject);
  });
}

describe("pages of other origins", () => {
  const asking = (url: string, origin: string, more: Record<string, string> = {}) =>
    fetch(`${url}/v1/chat/completions`, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST", ...more },
    });
  const allowed = async (url: string, origin: string): Promise<boolean> => {
    const { headers } = await asking(url, origin);
    const { status } = await fetch(`${url}/v1/models`, { headers: { origin } });
    const isAllowed = headers.get("access-control-allow-origin") === origin;
    expect(status).toBe(isAllowed ? 200 : 403);
    return isAllowed;
  };

  test("an allow-list with patterns", async () => {
    const corsOrigins = [
      "https://a.example",
      "app://*",
      "https://*.b.example",
      "http://c.example:*",
    ];
    await served({ corsOrigins }, async (url) => {
      for (const origin of [
        "https://a.example",
        "app://obsidian.md",
        "https://x.b.example",
        "http://c.example:3000",
      ]) {
        expect(await allowed(url, origin), origin).toBe(true);
      }
      for (const origin of [
        "https://a.example.evil",
        "https://aXexample",
        "https://evil/.b.example",
        "http://a.example",
        "null",
        "https://b.example",
        "xapp://a",
      ]) {
        expect(await allowed(url, origin), origin).toBe(false);
      }
    });
  });

  test("may ask for a program of this machine if they are on it, and only then", async () => {
    const network = { "access-control-request-private-network": "true" };
    await served({ corsOrigins: ["https://a.example"] }, async (url) => {
      const yes = await asking(url, "https://a.example", network);
      expect(yes.headers.get("access-control-allow-private-network")).toBe("true");
      const unasked = await asking(url, "https://a.example");
      expect(unasked.headers.has("access-control-allow-private-network")).toBe(false);
      const no = await asking(url, "https://b.example", network);
      expect(no.headers.has("access-control-allow-private-network")).toBe(false);
    });
  });

  test("get the methods, headers and credentials of the flags", async () => {
    const corsRules = { methods: "GET, POST", headers: "authorization", credentials: false };
    await served({ corsOrigins: ["*"], corsRules }, async (url) => {
      const { headers } = await asking(url, "https://a.example", {
        "access-control-request-headers": "x-other",
      });
      expect(headers.get("access-control-allow-methods")).toBe("GET, POST");
      expect(headers.get("access-control-allow-headers")).toBe("authorization");
      expect(headers.has("access-control-allow-credentials")).toBe(false);
    });
  });
});

test("a port may be shared", async () => {
  await served({ reusePort: true }, async (url) => {
    const { port } = new URL(url);
    const other = createServer();
    const taken = new Promise((resolve) => other.once("error", resolve));
    other.listen(Number(port), "127.0.0.1");
    expect(await taken).toMatchObject({ code: "EADDRINUSE" }); // who does not ask for it gets none
    await served({ reusePort: true, port: Number(port) }, async (second) => {
      expect((await fetch(`${second}/health`)).status).toBe(200);
    });
  });
});

// lantern serve's flags for keys and the token: where they come from, what is refused before a model is loaded, and that no
// key is ever printed, logged or answered.

import { mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { post, until } from "../server/test-server.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

interface Given {
  environment?: Record<string, string>;
  files?: Record<string, string>;
}

function terminalWith({ environment = {}, files = {} }: Given): FakeTerminal {
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1", ...environment };
  for (const [path, text] of Object.entries(files)) terminal.files.set(path, text);
  return terminal;
}

async function serve(flags: string[], given: Given = {}) {
  const file = await tinyFile();
  const terminal = terminalWith(given);
  const common = ["-m", file.path, "-a", "tiny", "--port", "0", "--no-sessions", "--threads", "1"];
  const ended = main(["serve", ...common, ...flags], terminal);
  await until("the server is there", () => /Ctrl-C stops it|^\{.*\}$/m.test(terminal.stdout));
  closing.push(async () => {
    terminal.pressCtrlC();
    expect(await ended).toBe(0);
    file.remove();
  });
  const url = /(?:served at |"url":")(http[^\s"]+)/.exec(terminal.stdout)![1]!;
  const status = async (path: string, key?: string): Promise<number> =>
    (await fetch(url + path, { headers: key ? { authorization: `Bearer ${key}` } : {} })).status;
  return { url, terminal, status };
}

const admin = "/lantern/v1/models"; // needs the web app's library
const canary = "c4n4ry-of-a-key";

describe("keys", () => {
  test("from files and from the environment; a file's are all good", async () => {
    const { status } = await serve(["--api-key-file", "keys", "--api-key", "third"], {
      files: { keys: "first\n\n  second \r\n" },
      environment: { LANTERN_ADMIN_KEY: "master", LANTERN_API_KEY: "not asked" },
    });
    for (const key of ["first", "second", "third", "master"]) {
      expect(await status("/v1/models", key), key).toBe(200);
    }
    expect(await status("/v1/models", "not asked")).toBe(401);
    expect(await status(admin, "first")).toBe(401);
    expect(await status(admin, "master")).toBe(200);
  });

  const refused: [string, string[], Given, RegExp][] = [
    ["an empty key", ["--api-key", ""], {}, /--api-key: got an empty key/],
    ["an empty file", ["--admin-key-file", "f"], { files: { f: "\n" } }, /got an empty file/],
    [
      "two admin keys",
      ["--admin-key-file", "f"],
      { files: { f: `${canary}\nb` } },
      /several lines/,
    ],
    ["a key that cannot be sent", ["--api-key", `${canary}\u2603`], {}, /HTTP header cannot carry/],
    [
      "one key for both",
      ["--admin-key", canary],
      { environment: { LANTERN_API_KEY: canary } },
      /is also an API key/,
    ],
    ["two ways", ["--no-token", "--admin-key", canary], {}, /Drop one/],
    ["a new token and none", ["--no-token", "--new-token"], {}, /--new-token.*Drop one/],
    ["a name that is none", ["--allow-host", "http://x/"], {}, /--allow-host: got "http:\/\/x\/"/],
    ["a flag that is not known", [`--api-keys=${canary}`], {}, /--api-keys=\.\.\./],
  ];
  test.each(refused)("%s is refused, without showing it", async (_, flags, given, message) => {
    const terminal = terminalWith(given);
    expect(await main(["serve", "-m", "none.gguf", ...flags], terminal)).toBe(2);
    expect(terminal.stderr).toMatch(message);
    expect(terminal.stdout + terminal.stderr).not.toContain(canary);
  });

  test("are in no answer, no message and no log", async () => {
    const keys = ["--api-key", `${canary}-1`, "--admin-key", `${canary}-2`];
    const { url, terminal } = await serve([...keys, "--verbose"]);
    let answers = "";
    const read = async (response: Response): Promise<void> => {
      answers += `${JSON.stringify([...response.headers])} ${await response.text()}\n`;
    };
    const paths = ["/props", "/metrics", "/slots", "/v1/models", "/lantern/v1/status", "/api/tags"];
    for (const path of [...paths, admin, "/lantern/v1/machine", "/none", "/health"]) {
      for (const key of ["", "1", "2", "3"]) {
        const headers = { authorization: `Bearer ${canary}-${key}` };
        await read(await fetch(url + path, { headers: key === "" ? {} : headers }));
      }
    }
    const key = { authorization: `Bearer ${canary}-1` };
    const chat = { messages: [{ role: "user", content: "the" }], max_tokens: 2 };
    await read(await post(`${url}/v1/chat/completions`, chat, key));
    await read(await post(`${url}/completion`, { prompt: 5, x: 1 }, key));
    for (const at of ["1", "2"]) {
      const headers = { authorization: `Bearer ${canary}-${at}` };
      await read(await post(`${url}/lantern/v1/login`, {}, headers));
    }
    expect(answers).toContain("set-cookie");
    expect(answers).toContain('"__verbose"');
    for (const text of [answers, terminal.stdout, terminal.stderr]) {
      expect(text).not.toContain(canary);
    }
  });
});

describe("the token", () => {
  test("is printed in the page's address, and in --json; it is in no answer and not on stderr", async () => {
    const { url, terminal, status } = await serve(["--json"]);
    const started = JSON.parse(terminal.stdout) as Record<string, string>;
    const { token } = started;
    expect(started).toEqual({
      url,
      pageUrl: `${url}/?token=${token}`,
      token,
      model: "tiny",
      models: ["tiny"],
    });
    expect(await status(admin)).toBe(401);
    expect(await status(admin, token)).toBe(200);
    let answers = "";
    for (const path of ["/props", "/metrics", "/slots", admin, "/lantern/v1/status"]) {
      const headers = { authorization: `Bearer ${token}` };
      answers += await (await fetch(url + path, { headers })).text();
    }
    expect(answers + terminal.stderr).not.toContain(token);
  });

  test("is that of the start before, unless a new one is asked for", async () => {
    const data = mkdtempSync(join(tmpdir(), "lantern-token-"));
    vi.stubEnv("LANTERN_DATA", data);
    closing.push(async () => {
      vi.unstubAllEnvs();
      rmSync(data, { recursive: true });
    });
    const tokenOf = async (...flags: string[]): Promise<string> => {
      const { terminal } = await serve(["--json", ...flags]);
      return (JSON.parse(terminal.stdout) as { token: string }).token;
    };
    const first = await tokenOf();
    expect(await tokenOf()).toBe(first);
    const renewed = await tokenOf("--new-token");
    expect(renewed).not.toBe(first);
    expect(await tokenOf()).toBe(renewed);
  });

  test("without the web app it is a header for scripts", async () => {
    const { terminal } = await serve(["--no-web"]);
    expect(terminal.stdout).toMatch(/admin {7}Authorization: Bearer [\da-f]{32,}/);
  });
});

test("--no-token says what that means; this machine's own name is known without being told", async () => {
  const given = ["--no-token", "--allow-host", "box.example"];
  const { url, terminal, status: asked } = await serve(given);
  expect(terminal.stderr).toContain("every program and every user on this machine");
  expect(terminal.stdout).not.toMatch(/token=|Bearer/);
  expect(await asked(admin)).toBe(200);
  const status = async (host: string): Promise<number> => {
    const { request } = await import("node:http");
    return await new Promise((resolve, reject) => {
      const asked = request(`${url}/health`, { headers: { host } }, (response) => {
        response.resume();
        resolve(response.statusCode!);
      });
      asked.on("error", reject).end();
    });
  };
  expect(await status(hostname())).toBe(200);
  expect(await status(`${hostname().split(".")[0]}:8080`)).toBe(200);
  expect(await status("box.example")).toBe(200);
  expect(await status("evil.example")).toBe(403);
});

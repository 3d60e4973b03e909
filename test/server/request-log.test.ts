// The lines about answered requests: which level they have, and what they never contain.

import { expect, test } from "vitest";
import { post, testServer } from "./test-server.ts";

test("a request that computes is an info, one that reads is for debugging; neither has a key or a query", async () => {
  const lines: string[] = [];
  const { server, log, close } = await testServer({
    apiKeys: ["secret"],
    logRequest: (line, level) => lines.push(`${level}: ${line.replace(/\d+ ms/, "N ms")}`),
  });
  try {
    const { url } = server;
    const key = { authorization: "Bearer secret" };
    await (
      await post(`${url}/v1/completions?x=secret`, { prompt: "a secret", max_tokens: 1 }, key)
    ).text();
    await (await fetch(`${url}/v1/models?token=secret`, { headers: key })).text();
    await (await post(`${url}/v1/completions`, { prompt: "a" })).text();
    expect(lines.map((line) => line.replace(/ (200|400) /, " OK "))).toEqual([
      "info: POST /v1/completions OK N ms",
      "debug: GET /v1/models OK N ms",
      "info: POST /v1/completions 401 N ms",
    ]);
    expect(log).toEqual([]);
  } finally {
    await close();
  }
});

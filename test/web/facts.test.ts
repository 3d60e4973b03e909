// Machine, Limits and Models in a real browser: numbers that are held against the public API, downloads and loads with a
// library that is made up, and what the routes refuse.

import { expect, test } from "vitest";
import type { ModelLibrary } from "../../apps/server/serve.ts";
import { digits } from "../../apps/web/src/state/format.ts";
import { type LimitsReport, limits, open, SourceError } from "../../src/index.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { request } from "../server/lantern-client.ts";
import { rememberMadeUpMachine } from "../support/measured-machine.ts";
import { heldAt, scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

type Listing = Awaited<ReturnType<ModelLibrary["list"]>>[number];

/** Two models: one that is here, one that comes when the test lets it. */
function fakeLibrary() {
  const facts = { licence: "MIT", bytes: 1_000_000, chat: true, source: "a test" };
  const here: Listing = { name: "here", description: "is here", state: "cached", ...facts };
  const far: Listing = { name: "far", description: "is far", state: "absent", ...facts };
  const arrivals = { arrive: () => {}, fail: () => {} };
  const library: Partial<ModelLibrary> = {
    list: async () => [here, far],
    download: async (_, { signal, onProgress }) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      arrivals.arrive = resolve;
      arrivals.fail = () => reject(new SourceError("the network is down"));
      signal.addEventListener("abort", () => reject(signal.reason as Error));
      onProgress({ loadedBytes: 250_000, totalBytes: 1_000_000 });
      await promise;
      far.state = "cached";
      return "far";
    },
    open: async (name) => scriptedModel({ answer: () => `I am ${name}.` }),
  };
  return { library, arrivals };
}

describeBrowser("the web app", () => {
  const stage = useStage();

  test("a model is downloaded with progress, stopped, failed, loaded, used, unloaded", async () => {
    const { library, arrivals } = fakeLibrary();
    const first = scriptedModel({ answer: () => "I am first." });
    const { url } = await stage.serve({ models: { first }, library });
    const page = await stage.page(`${url}/#/models`);
    const far = page.locator(".models li", { hasText: "is far" });
    await far.getByRole("button", { name: "Download" }).click();
    await far.getByText("250 kB of 1 MB").waitFor();
    await expect.poll(() => far.getByRole("progressbar").getAttribute("value")).toBe("0.25");
    await far.getByRole("button", { name: "Stop" }).click();
    await far.getByRole("button", { name: "Download" }).click();
    await far.getByText("250 kB of 1 MB").waitFor();
    arrivals.fail();
    await far.getByText("the network is down").waitFor();
    await far.getByRole("button", { name: "Download" }).click();
    await far.getByText("250 kB of 1 MB").waitFor();
    arrivals.arrive();
    await far.getByRole("button", { name: "Load" }).click();
    await far.getByRole("button", { name: "Chat" }).click();
    await say(page, "Who are you?");
    expect(await answers(page)).toEqual(["I am far."]);
    await expect.poll(() => page.getByLabel("Model", { exact: true }).inputValue()).toBe("far");
    const conversation = page.url();

    await page.goto(`${url}/#/models`);
    await far.getByRole("button", { name: "Unload" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Unload" }).click();
    await far.getByRole("button", { name: "Load" }).waitFor();
    await page.goto(conversation);
    await page.getByText("far is not loaded").waitFor();
    await page.getByRole("button", { name: "Load far" }).click();
    await say(page, "And now?");
    expect(await answers(page)).toEqual(["I am far.", "I am far."]);
  });

  test("names that are not in the list are refused, and never become paths", async () => {
    const { library } = fakeLibrary();
    const first = scriptedModel({ answer: () => "x" });
    const { url } = await stage.serve({ models: { first }, library });
    const post = (what: string, name: string, status: number) =>
      request<{ error: { message: string } }>(
        `${url}/lantern/v1/models/${what}`,
        "POST",
        { name },
        status,
      );
    for (const name of ["../../etc/passwd", "/etc/passwd", "hf:../x/y.gguf", "unknown"]) {
      await post("load", name, 404);
      await post("download", name, 404);
      await post("unload", name, 404);
    }
    expect((await post("load", "far", 409)).error.message).toContain("Download it first");
    await request(`${url}/lantern/v1/models/load`, "POST", { name: "here", path: "/" }, 400);
    await request(`${url}/lantern/v1/limits?model=first`, "GET", undefined, 404);
    await request(`${url}/lantern/v1/limits?model=nobody`, "GET", undefined, 404);
  });

  test("a model that writes an answer is not unloaded", async () => {
    const { library } = fakeLibrary();
    const first = scriptedModel({
      answer: () => "word ".repeat(500),
      before: heldAt("word word word"),
    });
    const { url } = await stage.serve({ models: { first }, library });
    const page = await stage.page(url);
    await say(page, "Talk");
    await page.getByText("word word").waitFor();
    const path = `${url}/lantern/v1/models/unload`;
    const { error } = await request<{ error: { code: string } }>(
      path,
      "POST",
      { name: "first" },
      409,
    );
    expect(error.code).toBe("model_busy");
    await page.keyboard.press("Escape");
    await answers(page);
  });

  test("the Machine page shows the memory of a real model, and where its time went", async () => {
    await using model = await open("stories15m", { threads: 1, profile: true });
    const library: Partial<ModelLibrary> = { locate: async () => "stories15m" };
    const { url } = await stage.serve({ models: { stories15m: model }, library });
    await model.generate("Once upon a time", { maxTokens: 4 }).result;
    const page = await stage.page(`${url}/#/machine`);
    await page.getByText("15.2M parameters, f32").waitFor();
    for (const part of ["embedding", "attention", "feed forward", "KV cache"]) {
      await page.locator(".memory-legend li", { hasText: part }).waitFor();
    }
    await page.getByText(/Writing answers: \d+ tokens/).waitFor();
    await page.getByRole("button", { name: "Measure (8 s)" }).waitFor(); // tests know no measurement
    const { models } = await request<{ models: { info: { backend: { notes: string[] } } }[] }>(
      `${url}/lantern/v1/machine`,
    );
    expect(models[0]!.info.backend.notes.join()).not.toMatch(/\/(home|root|tmp|Users)\//);
  });

  test("the Limits page opens on this machine and the loaded model, and remembers what was chosen", async () => {
    const remembered = await rememberMadeUpMachine();
    try {
      await using model = await open("stories15m", { threads: 1 });
      const library: Partial<ModelLibrary> = { locate: async () => "stories15m" };
      const { url } = await stage.serve({ models: { stories15m: model }, library });
      const page = await stage.page(`${url}/#/machine`);
      const report = await request<LimitsReport>(`${url}/lantern/v1/limits?model=stories15m`);
      const speed = digits(report.decode.rows[0]!.tokensPerSecond);
      await page.getByText(`generates at most ${speed} tokens/s`).waitFor();
      await page.getByRole("link", { name: "All limits" }).click();
      const generation = page.locator(".numbers .card", { hasText: "Generation" }).locator("b");
      await generation.filter({ hasText: `${speed} tokens/s` }).waitFor();
      await page.getByText("as stored: 32 bits").waitFor();
      const device = page.getByLabel("Device");
      await expect.poll(() => device.inputValue()).toBe("this machine");
      await expect
        .poll(() => page.locator(".controls select").first().inputValue())
        .toBe("loaded stories15m");

      await device.selectOption("NVIDIA H200");
      await page.reload();
      const back = page.getByRole("button", { name: "Back to this machine" });
      await back.waitFor();
      await expect.poll(() => device.inputValue()).toBe("h200");
      await back.click();
      await generation.filter({ hasText: `${speed} tokens/s` }).waitFor();
      await page.getByText("What these words mean").click();
      await page.getByText("How many bytes the memory delivers per second").waitFor();
    } finally {
      remembered.forget();
    }
  });

  test("the Limits page computes what limits() does, and follows its sliders", async () => {
    const { url } = await stage.serve({ models: {} });
    const page = await stage.page(`${url}/#/limits`);
    const choose = async (bits: string) => {
      await page.locator(".controls select").first().selectOption("Qwen1.5 7B");
      await page.locator(".controls select").last().selectOption("NVIDIA GeForce RTX 4090");
      await page.getByLabel("Bits per weight").fill(bits);
    };
    const shown = async (name: string) =>
      await page.locator(".numbers .card", { hasText: name }).locator("b").innerText();
    await choose("6"); // the seventh stop: 16 bits
    const options = { device: "rtx4090", weights: 16, kv: 16, context: 8192 };
    const report = await limits("qwen1.5-7b", options);
    const points = report.prefill.turns.points.map(({ tokens }) => Math.round(tokens));
    const text = points.map((point) => point.toLocaleString("en")).join(" and ");
    await expect.poll(() => shown("Turning points")).toBe(text);
    const speed = Number.parseFloat(await shown("Generation"));
    expect(speed).toBeCloseTo(report.decode.rows[0]!.tokensPerSecond, 0);
    await expect.poll(() => page.locator(".chart polyline").count()).toBe(4);
    await choose("2"); // the third: 4 bits
    await expect
      .poll(async () => Number.parseFloat(await shown("Generation")))
      .toBeGreaterThan(3 * speed);
  });

  test("the Limits page computes a configuration of one's own: sizes, and a config.json", async () => {
    const { url } = await stage.serve({ models: {} });
    const page = await stage.page(`${url}/#/limits`);
    await page.locator(".controls select").first().selectOption("A configuration of your own");
    await page.locator(".controls select").last().selectOption("NVIDIA GeForce RTX 4090");
    await page.getByLabel("Bits per weight").fill("6"); // 16 bits
    const generation = page.locator(".numbers .card", { hasText: "Generation" }).locator("b");
    const shows = async (model: Parameters<typeof limits>[0]): Promise<void> => {
      const report = await limits(model, { device: "rtx4090", context: 8192 });
      const speed = digits(report.decode.rows[0]!.tokensPerSecond);
      await generation.filter({ hasText: `${speed} tokens/s` }).waitFor();
    };
    await shows("llama-3-8b");
    const size = (name: string) => page.getByRole("spinbutton", { name, exact: true });
    await size("Layers").fill("16");
    await size("Layers").blur();
    const { shape } = (await limits("llama-3-8b", { device: "rtx4090" })).model;
    await shows({ shape: { ...shape, layers: 16 } });
    await size("Heads").fill("0");
    await size("Heads").blur();
    await page.getByRole("alert").filter({ hasText: "heads: got 0" }).waitFor();
    await expect.poll(() => generation.count()).toBe(0);

    const config = {
      ...{ model_type: "mixtral", hidden_size: 4096, intermediate_size: 14336, vocab_size: 32000 },
      ...{ num_attention_heads: 32, num_key_value_heads: 8, num_hidden_layers: 32 },
      ...{ num_local_experts: 8, num_experts_per_tok: 2, rms_norm_eps: 1e-5 },
    };
    const field = page.getByLabel("config.json of a Hugging Face folder");
    await field.fill(JSON.stringify(config));
    await shows({ config });
    await page.getByText("counted from the graph of its architecture").waitFor();
    await field.fill(JSON.stringify({ ...config, model_type: "elmo" }));
    await page.getByRole("alert").filter({ hasText: "elmo" }).waitFor();
    await field.fill("{");
    await page.getByRole("alert").filter({ hasText: "expected JSON" }).waitFor();
    // A file, and what the browser remembers of it.
    const buffer = Buffer.from(JSON.stringify(config));
    const file = { name: "config.json", mimeType: "application/json", buffer };
    await page.getByLabel("or its file").setInputFiles(file);
    await shows({ config });
    await page.reload();
    await shows({ config });
  });

  test("the Limits page says what speculation gains, and how many users are served, as limits() does", async () => {
    const { url } = await stage.serve({ models: {} });
    const page = await stage.page(`${url}/#/limits`);
    await page.locator(".controls select").first().selectOption("Qwen1.5 7B");
    await page.locator(".controls select").last().selectOption("NVIDIA GeForce RTX 4090");
    const speculation = page.getByRole("region", { name: "Speculative decoding" });
    await speculation.locator("select").selectOption("Qwen1.5 0.5B");
    await speculation.getByRole("slider", { name: /^Acceptance/ }).fill("8"); // the ninth stop: 0.9
    const users = page.getByRole("region", { name: "Many users" });
    await users.getByRole("slider", { name: /^Users/ }).fill("5"); // the sixth stop: 32
    const report = await limits("qwen1.5-7b", {
      device: "rtx4090",
      weights: 4,
      context: 8192,
      speculation: { acceptance: 0.9, draft: "qwen1.5-0.5b" },
      serving: { users: 32, batch: 1000, pricePerHour: 1 },
    });
    const { bestDraftTokens, bestSpeedup } = report.speculation!;
    const gain = `best: ${bestDraftTokens} drafted, ${bestSpeedup.toFixed(2)} times as fast`;
    await speculation.locator(".mark-text", { hasText: gain }).waitFor();
    await users.getByText(`At most ${report.serving!.most.users} users.`).waitFor();
    await users.getByText("can be served").waitFor();
    await users.getByText(/1,000 requests that nobody waits for/).waitFor();
    await users.getByRole("slider", { name: /^First token within/ }).fill("0"); // 200 ms
    await users.getByText("the last first token would come too late").first().waitFor();
  });
});

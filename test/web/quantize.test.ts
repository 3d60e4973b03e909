// The Quantize page in a real browser: a report is made, held against quantize() and perplexity() themselves, shown on a
// desktop and on a phone; what goes wrong is said; names never become paths.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ModelLibrary } from "../../apps/server/serve.ts";
import { perplexity, quantize } from "../../src/index.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { request } from "../server/lantern-client.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { tinyFolder } from "../tools/tiny-folder.ts";
import { useStage } from "./stage.ts";

const text = "the cat sat at the sea and ate eels, the eels at the sea sat; ".repeat(12);
let folder = "";
const at = (name: string) => join(folder, name);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "lantern-web-quantize-"));
  writeFileSync(at("tiny.gguf"), await tinyGguf());
  writeFileSync(at("broken.gguf"), (await tinyGguf()).subarray(0, 40_000));
  for (const [name, bytes] of Object.entries(tinyFolder())) writeFileSync(at(name), bytes);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function library(): Partial<ModelLibrary> {
  const facts = { licence: "MIT", bytes: 1e6, chat: true, source: "a test" };
  const places = new Map([
    ["tiny", at("tiny.gguf")],
    ["broken", at("broken.gguf")],
    ["folder", folder],
  ]);
  return {
    list: async () =>
      [...places.keys()].map((name) => ({
        name,
        description: name,
        state: "cached" as const,
        ...facts,
      })),
    locate: async (id) => places.get(id),
  };
}

describeBrowser("the Quantize page", () => {
  const stage = useStage();
  const url = async () => (await stage.serve({ models: {}, library: library() })).url;

  const screens = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

  test("shows what a type costs, on a desktop and on a phone", async () => {
    const page = await stage.page(`${await url()}/#/quantize`, { viewport: screens.desktop });
    await page.getByLabel("Model").selectOption("tiny");
    await page.getByLabel("Type").selectOption("Q8_0");
    await page.getByLabel("Text (optional)").fill(text);
    await page.getByRole("button", { name: "Show the cost" }).click();
    await page.getByRole("heading", { name: "tiny as Q8_0" }).waitFor();
    await page.getByRole("heading", { name: "Error of each tensor" }).waitFor();

    const result = await quantize(at("tiny.gguf"), at("q8.gguf"), "Q8_0", { measure: true });
    const { tensors } = result;
    const worst = tensors.toSorted((a, b) => (b.relativeError ?? 0) - (a.relativeError ?? 0))[0]!;
    const first = page.locator("tbody tr").first();
    await expect
      .poll(() => first.locator("th").innerText())
      .toBe(worst.name.replace(/\.weight$/, ""));
    await expect
      .poll(() => first.innerText())
      .toContain(`${(100 * worst.relativeError!).toFixed(2)}%`);
    await page.getByRole("button", { name: `Show all ${tensors.length}` }).click();
    await expect.poll(() => page.locator("tbody tr").count()).toBe(tensors.length);

    const own = await perplexity(at("q8.gguf"), text, { contextSize: 128, chunks: 20 });
    const shown = (label: string) => page.locator(".numbers .card", { hasText: label });
    await expect
      .poll(() => shown("Perplexity").locator("b").innerText())
      .toBe(`${own.perplexity.value.toFixed(3)} ± ${own.perplexity.error.toFixed(3)}`);
    const types = `Q8_0 ${own.perplexity.value.toFixed(3)}`;
    const picture = page.getByRole("img", { name: new RegExp(`^Perplexity by size: .*${types}`) });
    await picture.waitFor();
    await expect
      .poll(() => picture.evaluate((image) => (image as HTMLImageElement).naturalWidth))
      .toBeTruthy();
    await expect.poll(() => shown("Speed limit").innerText()).toContain("has not been measured");
    for (const [name, viewport] of Object.entries(screens)) {
      await page.setViewportSize(viewport);
      await expect.poll(() => shown("Perplexity").isVisible()).toBe(true);
      // Nothing is wider than the screen; tables scroll by themselves.
      await expect
        .poll(() => page.evaluate("document.documentElement.scrollWidth"))
        .toBe(viewport.width);
      const pictures = process.env.LANTERN_SCREENSHOTS;
      if (!pictures) continue;
      for (const [part, top] of [
        ["top", 0],
        ["results", 560],
      ] as const) {
        await page.locator(".facts").evaluate((page, y) => page.scrollTo(0, y), top);
        await page.screenshot({ path: join(pictures, `quantize-${name}-${part}.png`) });
      }
    }
  });

  test("colours follow the system, or the choice", async () => {
    const page = await stage.page(`${await url()}/#/quantize`, { colorScheme: "light" });
    const paper = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
    const [light, dark] = ["rgb(251, 247, 240)", "rgb(23, 20, 16)"];
    await expect.poll(() => paper()).toBe(light);
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(() => paper()).toBe(dark);
    const next = page.locator(".sidebar").getByRole("button", { name: /^Colours/ });
    await next.click(); // light, whatever the system says
    await expect.poll(() => paper()).toBe(light);
    await next.click();
    await page.emulateMedia({ colorScheme: "light" });
    await expect.poll(() => paper()).toBe(dark);
    const pictures = process.env.LANTERN_SCREENSHOTS;
    if (pictures) await page.screenshot({ path: join(pictures, "quantize-dark.png") });
  });

  test("a folder is converted first; a damaged file, a short text and a stop are said", async () => {
    const page = await stage.page(`${await url()}/#/quantize`);
    const make = async (model: string, words: string) => {
      await page.getByLabel("Model").selectOption(model);
      await page.getByLabel("Type").selectOption("Q4_0");
      await page.getByLabel("Text (optional)").fill(words);
      await page.getByRole("button", { name: "Show the cost" }).click();
    };
    await make("folder", "");
    await page.getByRole("heading", { name: "folder as Q4_0" }).waitFor();
    await page.locator("tbody").getByText("f32 → q4_0").first().waitFor();
    await page.getByText("add a text to measure it").waitFor();
    await make("broken", "");
    const alert = page.getByRole("alert");
    await alert.getByText(/expected at most the file/).waitFor();
    expect(await alert.innerText()).not.toContain(folder);
    await make("tiny", "the cat");
    await alert.getByText(/the text is too short/).waitFor();
  });

  test("one at a time, stopped, and only of models that are known", async () => {
    const path = `${await url()}/lantern/v1/quantize`;
    type View = { job: { error: string | null; report: object | null } | null; types: string[] };
    const post = (body: object, status: number, where = path) =>
      request<View & { error: { code: string } }>(where, "POST", body, status);
    for (const model of ["../../etc/passwd", at("tiny.gguf"), "unknown"]) {
      expect((await post({ model, type: "Q8_0" }, 404)).error.code).toBe("no_file");
    }
    await post({ model: "tiny", type: "Q8_0", output: "/tmp/x" }, 400);
    const long = text.repeat(50);
    expect((await post({ model: "tiny", type: "Q8_0", text: long }, 202)).job).toBeTruthy();
    expect((await post({ model: "tiny", type: "Q4_0" }, 409)).error.code).toBe("task_in_progress");
    await post({}, 200, `${path}/cancel`);
    await expect.poll(async () => (await request<View>(path)).job).toBeNull();
    await post({ model: "tiny", type: "Q9" }, 202);
    await expect
      .poll(async () => (await request<View>(path)).job?.error)
      .toMatch(/got "Q9", expected one of/);
  });
});

// What answers may look like: task lists, aligned tables, formulas, coloured code, thoughts, text from right to left; and
// that none of it opens a door.
// Held against: the elements of the page.

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { heldAt, type Script, scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const markdown = `<think>
Let me **think** first.
</think>

- [x] bought milk
- [ ] called home

| left | middle | right |
|:-----|:------:|------:|
| a    | b      | c     |

It costs $5 to $6. The energy is $E = mc^2$, and \\(a_i \\le b\\).

$$
\\int_0^1 x^2 \\, dx = \\frac{1}{3}
$$

\\[ \\sqrt{2} \\]

مرحبا بالعالم

\`\`\`python
def answer(x):  # a comment
    return "<b>" + str(42)
\`\`\`

\`\`\`unknown-language
plain & <simple>
\`\`\`

The end.`;

const ask = async (page: Page, text: string = "Show me"): Promise<void> => {
  await say(page, text);
  await answers(page);
};

describeBrowser("rich answers", () => {
  const stage = useStage();
  const serve = async (answer: string, more: Partial<Script> = {}) =>
    await stage.serve({
      models: { scripted: scriptedModel({ answer: () => answer, ...more }) },
    });

  test("have task lists, aligned tables, formulas, coloured code, folded thoughts, directions", async () => {
    const { url } = await serve(markdown, { msPerPiece: 3 });
    const page = await stage.page(url);
    await ask(page);
    const answer = page.locator(".answer > .markdown");
    await answer.locator("math").first().waitFor(); // KaTeX comes when it is needed

    const boxes = answer.locator("li input[type=checkbox]");
    await expect
      .poll(() => boxes.evaluateAll((all) => all.map((box) => (box as HTMLInputElement).checked)))
      .toEqual([true, false]);
    await expect.poll(() => boxes.first().isDisabled()).toBe(true);
    await expect.poll(() => boxes.first().getAttribute("aria-label")).toBe("Done");

    const aligned = await answer
      .locator("td")
      .evaluateAll((all) => all.map((cell) => getComputedStyle(cell).textAlign));
    expect(aligned).toEqual(["left", "center", "right"]);

    await expect.poll(() => answer.locator("math").count()).toBe(4);
    await expect.poll(() => answer.locator("math[display=block]").count()).toBe(2);
    await expect.poll(() => answer.locator("math mfrac").count()).toBe(1);
    await expect.poll(() => answer.getByText("It costs $5 to $6.").count()).toBe(1); // money is no formula
    expect(await answer.innerText()).not.toContain("\\int");

    const python = answer.locator("figure.code").first();
    await python.locator(".hljs-keyword", { hasText: "def" }).waitFor();
    await expect.poll(() => python.locator(".hljs-string").innerText()).toBe('"<b>"');
    await expect.poll(() => python.locator("code").innerText()).toContain("# a comment");
    const unknown = answer.locator("figure.code").last();
    await expect.poll(() => unknown.locator("code").innerText()).toBe("plain & <simple>");
    await expect.poll(() => unknown.locator("code span").count()).toBe(0);

    const thought = page.locator("details.thought");
    await expect
      .poll(() => thought.evaluate((fold) => (fold as HTMLDetailsElement).open))
      .toBe(false);
    expect(await answer.innerText()).not.toContain("think");
    await thought.locator("summary").click();
    await expect.poll(() => thought.locator("strong").innerText()).toBe("think");

    const arabic = answer.locator("p", { hasText: "مرحبا" });
    await expect.poll(() => arabic.evaluate((p) => getComputedStyle(p).direction)).toBe("rtl");
    await expect
      .poll(() => answer.getByText("The end.").evaluate((p) => getComputedStyle(p).direction))
      .toBe("ltr");
  });

  test("fold a thought while it is being thought", async () => {
    const { url } = await serve(`<think>${"hm ".repeat(200)}</think>Done.`, {
      before: heldAt("hm hm hm"),
    });
    const page = await stage.page(url);
    await say(page, "Think");
    await page.getByText("Thinking…").waitFor();
    await expect.poll(() => page.locator("details.thought .markdown").isVisible()).toBe(false);
    await page.keyboard.press("Escape");
    await answers(page);
    await page.getByText("Reasoning").waitFor();
  });

  test("stay harmless, whatever stands in formulas, code, task lists and thoughts", async () => {
    const hostile = [
      "$\\href{javascript:window.hacked=1}{x}$",
      "$\\htmlData{onclick=window.hacked=2}{x}$ $\\includegraphics{http://127.0.0.1:9/x.png}$",
      "$<img src=x onerror=window.hacked=3>$",
      '$$\\text{</mtext></math><img src=x onerror="window.hacked=4">}$$',
      "$\\style{background:url(//127.0.0.1:9)}{x}$ $\\url{javascript:window.hacked=5}$",
      "\\(<script>window.hacked=6</script>\\)",
      '<math><mtext><table><mglyph><style><img src=x onerror="window.hacked=7">',
      '<math href="javascript:window.hacked=8">x</math>',
      "- [ ] <input type=image src=x onerror=window.hacked=9>\n- [x] <input autofocus onfocus=window.hacked=10>",
      '```html\n<img src=x onerror="window.hacked=11"><script>window.hacked=12</script>\n```',
      '```js\nconst a = "</span><img src=x onerror=window.hacked=13>";\n```',
      '```js"><svg onload=window.hacked=14>\n1\n```',
      "<details open ontoggle=window.hacked=15><summary>x</summary></details>",
      `$${"{".repeat(2000)}$ $\\def\\a{\\a\\a}\\a$`,
    ];
    const thought = `<think>${hostile[3]}\n\n${hostile[10]}</think>\n\n`;
    const { url } = await serve(`${thought}$x$\n\n${hostile.join("\n\n")}\n\nThe end.`);
    const page = await stage.page(url);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await ask(page);
    await page.locator(".answer > .markdown math").first().waitFor();
    await page.locator(".answer > .markdown .hljs-string").first().waitFor();
    await page.locator("details.thought summary").click();
    await page.getByText("The end.").waitFor();
    expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined();
    const bad =
      ".answer :is(script, iframe, img, style, svg:not(.icon, .spark, .bar), form, object)";
    expect(await page.locator(bad).count()).toBe(0);
    expect(await page.locator(".answer input:not([type=checkbox][disabled])").count()).toBe(0);
    const attributes = await page.evaluate(() =>
      [...document.querySelectorAll(".answer *")].flatMap((element) =>
        element
          .getAttributeNames()
          .filter((name) => /^on|srcdoc|^style$|xlink/.test(name))
          .concat(element.closest("math") && element.hasAttribute("href") ? ["href"] : []),
      ),
    );
    expect(attributes).toEqual([]);
    expect(await page.locator('a[href^="javascript:" i]').count()).toBe(0);
    expect(asked.filter((address) => !address.startsWith(url))).toEqual([]);
  });
});

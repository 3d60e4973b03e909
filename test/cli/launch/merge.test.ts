// Settings put into other programs' configurations, held against JSON.parse and the packages yaml and our TOML reader: the values are there, everything else and all comments stay.

import { describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { type ConfigFormat, merged } from "../../../apps/cli/launch/merge.ts";
import type { Setting } from "../../../apps/cli/launch/settings.ts";
import { parseToml } from "../../../src/base/toml.ts";
import { UsageError } from "../../../src/index.ts";
import { Random } from "../../support/random.ts";

const put = (text: string, format: ConfigFormat, ...set: Setting[]): string =>
  merged(text, format, set, "its file");
const set = (at: Setting["at"], value: Setting["value"]): Setting => ({ at, value });

describe("JSON", () => {
  test("comments, order, layout and commas at the end stay", () => {
    const text = `// mine
{
    /* first */ "theme": "dark", // why
    "providers": {
        "other": { "url": "https://example.org//x" }, // keep
    },
}
`;
    expect(
      put(text, "json", set(["providers", "lantern", "url"], "u"), set(["theme"], "light")),
    ).toBe(`// mine
{
    /* first */ "theme": "light", // why
    "providers": {
        "other": { "url": "https://example.org//x" },
        "lantern": {
            "url": "u"
        }, // keep
    },
}
`);
  });

  test("elements of lists are found by a key, or appended", () => {
    const at = ["models", { key: "id", is: "ours" }, "size"] as const;
    const one = put('{"models": [{"id": "theirs", "size": 1}], "x": 1}', "json", set(at, 2));
    const two = put(one, "json", set(at, 3));
    expect(JSON.parse(one)).toEqual({
      models: [
        { id: "theirs", size: 1 },
        { id: "ours", size: 2 },
      ],
      x: 1,
    });
    expect((JSON.parse(two) as { models: unknown[] }).models[1]).toEqual({ id: "ours", size: 3 });
    expect(put(two, "json", set(at, 3))).toBe(two);
    const root = put("", "json", set([{ key: "name", is: "L" }, "url"], "u"));
    expect(JSON.parse(root)).toEqual([{ name: "L", url: "u" }]);
  });

  test("line ends, a byte order mark, and the last of two equal keys", () => {
    const text = '\uFEFF{\r\n\t"a": 1,\r\n\t"a": 2\r\n}\r\n';
    const changed = put(text, "json", set(["a"], { b: [1] }));
    expect(changed.startsWith("\uFEFF{\r\n\t")).toBe(true);
    expect(changed.replaceAll("\r\n", "")).not.toContain("\n");
    expect(JSON.parse(changed.slice(1))).toEqual({ a: { b: [1] } });
    expect(changed).toContain('"a": 1');
  });

  test.each([
    ['{"a": 1', "line 1"],
    ['{"a" 1}', 'expected ":"'],
    ["{'a': 1}", "a key in quotes"],
    ['{"a": 1} {}', "the end of the file"],
    ['{"a": /* open', "damaged"],
    ["[".repeat(5000), "at most 100"],
    ['{"providers": 7}', 'it has 7 where "lantern"'],
    ['{"providers": null}', "expected an object"],
    ["\0\0\0", "damaged"],
  ])("%j is refused with words", (text, words) => {
    const all = () => put(text, "json", set(["providers", "lantern"], 1));
    expect(all).toThrow(UsageError);
    expect(all).toThrow(words);
    expect(all).toThrow("its file is not changed");
    expect(all).toThrow("add by hand: providers.lantern = 1");
  });

  test("any object with any setting is what JSON.parse says", () => {
    const random = new Random(11);
    const pick = (count: number): number => random.below(count);
    const make = (depth: number): unknown => {
      const kinds = [1, "x", null, true, [], {}];
      if (depth === 0 || pick(3) === 0) return kinds[pick(kinds.length)];
      const keys = ["a", "b", "c"].slice(0, pick(4));
      return Object.fromEntries(keys.map((key) => [key, make(depth - 1)]));
    };
    let done = 0;
    for (let round = 0; round < 400; round++) {
      const before = Object.assign({}, make(3)) as Record<string, unknown>;
      const path = ["a", "b", "c"].slice(0, 1 + pick(3));
      const text = JSON.stringify(before, null, [undefined, 2, "\t"][pick(3)]);
      const wanted = structuredClone(before);
      let inner = wanted;
      const isObject = (value: unknown): boolean =>
        typeof value === "object" && value !== null && !Array.isArray(value);
      let isFine = true;
      for (const key of path.slice(0, -1)) {
        if (!Object.hasOwn(inner, key)) inner[key] = {};
        isFine &&= isObject(inner[key]);
        if (!isFine) break;
        inner = inner[key] as Record<string, unknown>;
      }
      const change = () => put(text, "json", set(path, { ours: [1] }));
      if (!isFine) {
        expect(change, text).toThrow(UsageError);
        continue;
      }
      inner[path.at(-1)!] = { ours: [1] };
      expect(JSON.parse(change()), text).toEqual(wanted);
      done++;
    }
    expect(done).toBeGreaterThan(100);
  });
});

describe("TOML", () => {
  const text = `# mine
model = "gpt" # the best
notify = ["a", "b"]

[model_providers.other]
name = "Other"
# end of other

[tools]
web = true
`;
  const settings = [
    set(["model"], "ours"),
    set(["model_provider"], "lantern"),
    set(["model_providers", "lantern", "name"], "Lantern"),
    set(["model_providers", "lantern", "size"], 5),
    set(["model_providers", "other", "name"], "Else"),
  ];

  test("root keys, tables that are there and new ones; comments stay", () => {
    const changed = put(text, "toml", ...settings);
    expect(parseToml(changed)).toEqual({
      model: "ours",
      model_provider: "lantern",
      notify: ["a", "b"],
      model_providers: { other: { name: "Else" }, lantern: { name: "Lantern", size: 5 } },
      tools: { web: true },
    });
    expect(changed).toContain("# mine\n");
    expect(changed).toContain("# end of other\n");
    expect(put(changed, "toml", ...settings)).toBe(changed);
    expect(parseToml(put("", "toml", ...settings))).toMatchObject({ model: "ours" });
  });

  test.each([
    'model = """\nlong\n"""\n',
    'text = """\nmodel = 1\n"""\nmodel = "x"\n',
    'model_providers = { other = { name = "x" } }\n',
    'model_providers.other.name = "x"\n',
    "model = [\n1,\n2]\n",
    "model = 1\nmodel = 2\n",
    "[model_providers\n",
    "model = 1979-05-27\n",
    "model_providers = 3\n",
  ])("%j: is either right, or refused", (hard) => {
    let changed: string | undefined;
    try {
      changed = put(hard, "toml", ...settings);
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError);
      expect((error as Error).message).toContain("its file is not changed");
      return;
    }
    expect(parseToml(changed)).toMatchObject({ model: "ours", model_provider: "lantern" });
    expect(parseToml(changed).text).toEqual(hard.startsWith("text") ? "model = 1\n" : undefined);
  });
});

describe("YAML", () => {
  const text = `# mine
model:
  default: "gpt"   # the best
  provider: auto

providers:
  other:
    api: https://example.org/v1
    models:
    - a
    - b
agent:
  text: |
    model:
      default: not this
# the end
`;
  const settings = [
    set(["model", "default"], "ours"),
    set(["model", "size"], 5),
    set(["providers", "lantern", "api"], "http://127.0.0.1:8080/v1"),
    set(["providers", "lantern", "models"], [{ id: "x: y # z" }]),
    set(["providers", "other", "models"], []),
    set(["new", "deep", "key"], true),
  ];
  const wanted = (before: string): unknown => {
    const all = (parseYaml(before) ?? {}) as Record<string, Record<string, unknown>>;
    return {
      ...all,
      model: { ...all.model, default: "ours", size: 5 },
      providers: {
        ...all.providers,
        lantern: { api: "http://127.0.0.1:8080/v1", models: [{ id: "x: y # z" }] },
        other: { ...(all.providers?.other as object), models: [] },
      },
      new: { deep: { key: true } },
    };
  };

  test("keys that are there and new ones; comments stay", () => {
    const changed = put(text, "yaml", ...settings);
    expect(parseYaml(changed)).toEqual(wanted(text));
    expect(changed).toContain("# mine\n");
    expect(changed).toContain("# the end\n");
    expect(put(changed, "yaml", ...settings)).toBe(changed);
  });

  test.each([
    "",
    "---\n# only a comment\n",
    "model:\nproviders:\n",
    "model: {}\nproviders: {}\n",
    "model:\n    default: a\n    other: b\nlist:\n- one\n- two: 3\n  four: 5\n",
    "'model':\n  \"default\": 'it''s'\nproviders:\n  other: {}\n",
    "model:\r\n  default: a\r\nproviders:\r\n  other:\r\n    x: 1\r\n",
    "a-b: 1\nmodel: # here\n  # there\n  default: >-\n    folded\n    text\n\n  last: x\n",
    "text: 'one\n  two'\nmodel:\n  default: \"a\n    b\"\n  c: d\n",
    "model:\n  default: [a,\n    b]\n  c: d",
  ])("%j: the values are there, and the rest stays", (before) => {
    const changed = put(before, "yaml", ...settings);
    expect(parseYaml(changed), changed).toEqual(wanted(before));
    expect(put(changed, "yaml", ...settings)).toBe(changed);
  });

  test.each([
    "model: gpt\n",
    "model: {default: a}\n",
    "model: &m\n  default: a\n",
    "model: *m\n",
    "model:\n  <<: *base\n  default: a\n",
    "a: 1\n---\nb: 2\n",
    "model:\n\tdefault: a\n",
    "- a\n- b\n",
    "just a text\n",
    "{model: 1}\n",
    "? complex\n: key\n",
    "model:\n  default: a\nmodel:\n  default: b\n",
    "%YAML 1.2\n---\na: 1\n",
    '"a\nb": 1\n',
    "model:\n  - a\n",
    "model:\n  ? b\n  : c\n",
  ])("%j: is refused with words", (before) => {
    const change = () => put(before, "yaml", ...settings);
    expect(change).toThrow(UsageError);
    expect(change).toThrow("its file is not changed");
  });
});

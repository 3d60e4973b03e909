// Perplexity by size as a picture: the article's table of Qwen1.5 (section 5.2), its labels, and bad points.

import { describe, expect, test } from "vitest";
import { typeLabel } from "../../apps/cli/perplexity-sizes.ts";
import { perplexityPicture, type QualityPoint } from "../../src/index.ts";
import { placeLabels } from "../../src/tools/perplexity/picture.ts";

// Bits per weight of llama.cpp's types, and the article's perplexities on wikitext.
const types = ["fp16", "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k"];
const bits = [16, 8.5, 6.56, 5.69, 5.5, 4.85, 4.5, 3.91, 3.35];
const table: Readonly<Record<string, readonly number[]>> = {
  "0.5B": [34.2, 34.22, 34.31, 33.8, 34.02, 34.27, 36.74, 38.25, 62.14],
  "1.8B": [15.99, 15.99, 15.99, 16.09, 16.01, 16.22, 16.54, 17.03, 19.99],
  "4B": [13.2, 13.21, 13.28, 13.24, 13.27, 13.61, 13.44, 13.67, 15.65],
  "7B": [14.21, 14.24, 14.35, 14.32, 14.12, 14.35, 14.47, 15.11, 16.57],
  "14B": [10.91, 10.91, 10.93, 10.98, 10.88, 10.92, 10.92, 11.24, 12.27],
  "32B": [8.87, 8.89, 8.91, 8.94, 8.93, 8.96, 9.17, 9.14, 10.51],
  "72B": [7.97, 7.99, 7.99, 7.99, 8.01, 8.0, 8.01, 8.06, 8.63],
};

function pointsOf(model: string): QualityPoint[] {
  return table[model]!.map((perplexity, i) => ({
    model: `Qwen1.5 ${model}`,
    label: types[i]!,
    bytesPerWeight: bits[i]! / 8,
    perplexity,
    error: 0.1,
  }));
}

/** Where circles and labels are, as the picture says. */
function placesIn(svg: string): { dots: [number, number][]; labels: [string, number, number][] } {
  const dots = [...svg.matchAll(/<circle cx="([\d.]+)" cy="([\d.]+)"/g)];
  const labels = [...svg.matchAll(/<text x="([\d.]+)" y="([\d.]+)" class="label"[^>]*>([^<]*)/g)];
  return {
    dots: dots.map(([, x, y]) => [Number(x), Number(y)]),
    labels: labels.map(([, x, y, text]) => [text!, Number(x), Number(y)]),
  };
}

describe("the article's table", () => {
  test.each(Object.keys(table))(
    "%s: every type is a point with a label of its own",
    async (model) => {
      const points = pointsOf(model);
      const svg = await perplexityPicture(points);
      expect(svg).toMatch(/^<svg [\s\S]*<\/svg>\n$/);
      expect(svg).not.toMatch(/NaN|Infinity|undefined/);
      const { dots, labels } = placesIn(svg);
      expect(labels.map(([text]) => text)).toEqual(types);
      expect(dots).toHaveLength(types.length);
      // Larger is to the right, worse is higher.
      for (const [i, [x, y]] of dots.entries()) {
        for (const [j, [otherX, otherY]] of dots.entries()) {
          expect(Math.sign(x - otherX)).toBe(Math.sign(bits[i]! - bits[j]!));
          const worse = Math.sign(points[i]!.perplexity - points[j]!.perplexity);
          if (Math.abs(y - otherY) > 0.2) expect(Math.sign(otherY - y)).toBe(worse);
        }
      }
      // 12px letters are at most 7 wide and 14 high.
      for (const [i, [text, x, y]] of labels.entries()) {
        for (const [other, otherX, otherY] of labels.slice(i + 1)) {
          const apart =
            x + 7 * text.length <= otherX + 0.2 ||
            otherX + 7 * other.length <= x + 0.2 ||
            Math.abs(y - otherY) >= 13.8;
          expect(apart, `${text} and ${other} overlap`).toBe(true);
        }
        for (const [dotX, dotY] of dots) {
          const covers = dotX > x && dotX < x + 7 * text.length && Math.abs(dotY - (y - 4)) < 7;
          expect(covers, `${text} covers a point`).toBe(false);
        }
      }
    },
  );

  test("several models: a colour and a line for each, a logarithmic axis where they are far apart", async () => {
    const svg = await perplexityPicture(Object.keys(table).flatMap(pointsOf));
    expect(svg).toContain("perplexity (logarithmic)");
    for (const model of Object.keys(table)) expect(svg).toContain(`>Qwen1.5 ${model}</text>`);
    expect(svg.match(/opacity: 0.45/g)).toHaveLength(7);
  });
});

test("one point, equal points, and a name with markup", async () => {
  const one = { model: "<b>", label: "a&b", bytesPerWeight: 1, perplexity: 5 };
  const svg = await perplexityPicture([one, one, one]);
  expect(svg).toContain("&lt;b&gt;");
  expect(svg).not.toMatch(/NaN|Infinity|<b>/);
  const places = placeLabels(
    [
      [200, 200],
      [200, 200],
      [200, 200],
    ],
    ["a", "a", "a"],
  );
  expect(new Set(places.map(({ x, y }) => `${x} ${y}`)).size).toBe(3);
});

test.each([
  [[], "got no points"],
  [[{ model: "m", label: "x", bytesPerWeight: 0, perplexity: 3 }], "x: got 0 bytes per weight"],
  [[{ model: "m", label: "x", bytesPerWeight: 1, perplexity: Infinity }], "perplexity of Infinity"],
])("%j", async (points, message) => {
  await expect(perplexityPicture(points)).rejects.toThrow(message);
});

test("a label is the type in the file's name, or the most common type", () => {
  const info = { name: "m", weightType: "q4_k", weightBytes: 1, parameters: 1 };
  const labels = [
    "a/m-Q4_K_M.gguf",
    "m.iq2_xxs.gguf",
    "m-bf16.gguf",
    "C:\\x\\model.gguf",
    "m-Q4.bin",
  ];
  expect(labels.map((path) => typeLabel({ path, info }))).toEqual([
    "Q4_K_M",
    "IQ2_XXS",
    "BF16",
    "Q4_K",
    "Q4_K",
  ]);
});

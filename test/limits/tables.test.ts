// Every number of the published tables (latency-tables.ts), computed again with src/limits. Where a printed number does
// not follow from the tables' own formulas, both numbers stand in `discrepancies`, and both are asserted: that the
// formula gives ours, and that it does not give the printed one.
//
// Perplexities and measured times are printed there, too; nothing computes them, they only serve as divisors.

import { describe, expect, test } from "vitest";
import { shapeNamed } from "../../src/limits/configs.ts";
import { decodeLine, lineMs, lineTotalMs } from "../../src/limits/decode.ts";
import { deviceNamed, opsPerByte } from "../../src/limits/devices.ts";
import { shapeState, tokensThatFit } from "../../src/limits/memory.ts";
import { shapeCost } from "../../src/limits/model-cost.ts";
import { prefillLimit, turningPoints } from "../../src/limits/prefill.ts";
import {
  kvParameters,
  type ModelShape,
  parameterCounts,
  withKvHeads,
} from "../../src/limits/shape.ts";
import {
  activeAgain,
  decodeTable,
  fitTable,
  fitWidths,
  generationLengths,
  generationTable,
  intensities,
  kvTable,
  parameterTable,
  prefillLengths,
  prefillTable,
  type Size,
  sizes,
  storedTable,
  turningTable,
} from "./latency-tables.ts";

const mega = 2 ** 20;
const giga = 2 ** 30;
const rtx4090 = deviceNamed("rtx4090-article")!;

function shapeOf(size: Size): ModelShape {
  const { shape } = shapeNamed(`qwen1.5-${size.replace(" no GQA", "")}`)!;
  return size.endsWith("no GQA") ? withKvHeads(shape, shape.heads) : shape;
}

interface Discrepancy {
  printed: number | string;
  computed: number | string;
  why: string;
}

/** Printed numbers that the tables' own formulas do not give, by table, row and column. */
const discrepancies: Readonly<Record<string, Discrepancy>> = {
  "parameters 110B no GQA intermediate": {
    printed: 24576,
    computed: 49152,
    why: "the 72B's size was repeated; the parameters beside it are those of 49152",
  },
  "kv 110B": {
    printed: 0.125,
    computed: 0.15625,
    why: "80 layers of 2 x 8192 / 8; W and the turning points of the 110B agree with 0.15625",
  },
  "active 14B": { printed: "12.6", computed: "12.5", why: "the parameter table says 12.47" },
  "active 32B no GQA": {
    printed: "29.6",
    computed: "32.1",
    why: "the number with GQA was repeated; the tokens that fit are those of 32.05",
  },
  "active 110B no GQA": {
    printed: "102",
    computed: "111",
    why: "the number with GQA was repeated; nothing fits with either",
  },
};

/** What a table should show: the printed number, or ours where the two are known to differ. */
function expected<T extends number | string>(cell: string, printed: T): T {
  const known = discrepancies[cell];
  if (!known) return printed;
  expect(known.printed, `${cell}: the printed number is the one that the list names`).toBe(printed);
  return known.computed as T;
}

test("a known discrepancy is one: the two numbers differ", () => {
  for (const [cell, { printed, computed }] of Object.entries(discrepancies)) {
    expect(computed, cell).not.toBe(printed);
  }
});

describe.each(sizes)("Qwen1.5 %s", (size) => {
  const shape = shapeOf(size);
  const counts = parameterCounts(shape);

  test("parameters", () => {
    const [vocab, hidden, layers, intermediate, groups, ...printed] = parameterTable[size];
    expect(shape).toMatchObject({ vocabSize: vocab, embed: hidden, layers });
    expect(shape.feedForward).toBe(expected(`parameters ${size} intermediate`, intermediate));
    expect(shape.heads / shape.kvHeads).toBe(groups);
    const computed = [counts.layers, counts.head, counts.active, counts.total];
    expect(computed.map((count) => (count / giga).toFixed(2))).toEqual(printed);
  });

  test("KV cache", () => {
    expect(kvParameters(shape) / mega).toBe(expected(`kv ${size}`, kvTable[size][0]));
  });

  test("active parameters beside what fits", () => {
    const [printed] = activeAgain[size];
    const digits = printed.split(".")[1]?.length ?? 0;
    expect((counts.active / giga).toFixed(digits)).toBe(expected(`active ${size}`, printed));
  });

  test("tokens that fit beside the active parameters", () => {
    const computed = fitWidths.map((bits) => {
      const { weightBytes } = shapeCost(shape, bits, "article");
      return tokensThatFit(rtx4090.memoryBytes!, weightBytes, shapeState(shape, bits.kv));
    });
    expect(computed).toEqual(fitTable[size]);
  });

  test("turning points", () => {
    const computed = [16, 8, 4].flatMap((weights) =>
      (["rough", "exact"] as const).map((count) => {
        const { starts, points } = turningPoints(
          shapeCost(shape, { weights, kv: 16 }, "article"),
          rtx4090,
          count,
        );
        expect(starts).toBe("bandwidth");
        expect(points.map(({ after }) => after)).toEqual(
          points.length > 0 ? ["arithmetic", "bandwidth"] : [],
        );
        return points.map(({ tokens }) => Math.floor(tokens));
      }),
    );
    expect(computed).toEqual(turningTable[size]);
  });

  test("W and B", () => {
    const [w, ...b] = decodeTable[size];
    const lines = [16, 8, 4].map((weights) =>
      decodeLine(shapeCost(shape, { weights, kv: 16 }, "article"), rtx4090),
    );
    expect(lines.map(({ tokensPerMs }) => Math.round(tokensPerMs))).toEqual([w, w, w]);
    expect(lines.map(({ firstMs }) => firstMs.toFixed(2))).toEqual(b);
  });

  const stored = storedTable[size];
  if (!stored) return; // the tables have the published models only
  test("memory of bfloat16 weights, and the size of the files", () => {
    const [memory, file] = stored;
    expect(((counts.total * 2) / giga).toFixed(2)).toBe(memory);
    // The printed sizes are sums of rounded ones.
    const bytes = (counts.total + counts.norms) * 2;
    expect(Math.abs(bytes / 1e9 / file - 1)).toBeLessThan(0.002);
  });
});

describe("the 0.5B as an example", () => {
  const counts = parameterCounts(shapeOf("0.5B"));

  test("step by step", () => {
    expect(counts.embedding / mega).toBe(148.375);
    expect((counts.attention / mega).toFixed(2)).toBe("4.00"); // printed: 4M, the biases rounded away
    expect(counts.feedForward / mega).toBe(8.25);
    expect((counts.layers / mega).toFixed(0)).toBe("294");
    expect(counts.head / mega).toBe(148.375);
    // Printed: 442.375, from the rounded 294.
    expect((counts.active / mega).toFixed(3)).toBe("442.445");
    expect((294 * mega + counts.head) / mega).toBe(442.375);
    expect((counts.active / giga).toFixed(3)).toBe("0.432");
  });

  test("0.432 is called the total there and is the active count; the total is 0.577", () => {
    expect((counts.total / giga).toFixed(3)).toBe("0.577");
  });

  test("the head's share: above 30% of the active parameters, not of the total; below 2% for the 72B", () => {
    expect(counts.head / counts.active).toBeGreaterThan(0.3);
    expect(counts.head / counts.total).toBeLessThan(0.3);
    const large = parameterCounts(shapeOf("72B"));
    expect(large.head / large.active).toBeLessThan(0.02);
  });
});

describe.each(["0.5B", "1.8B", "4B", "7B"] as const)("times of Qwen1.5 %s", (size) => {
  const shape = shapeOf(size);
  const cost = shapeCost(shape, { weights: 16, kv: 16 }, "article");

  // That table is headed "measured"; its numbers are the rough compute latencies.
  test("prefill", () => {
    const { measured, computed, percent } = prefillTable[size];
    const ms = prefillLengths.map(
      (tokens) => prefillLimit(cost, rtx4090, tokens, "rough").arithmeticSeconds * 1000,
    );
    expect(ms.map((value) => value.toFixed(2))).toEqual(computed);
    expect(ms.map((value, i) => Math.round((value / measured[i]!) * 100))).toEqual(percent);
  });

  // The printed times do not follow from W and B: they are those of the total parameters (the embedding table is read
  // with every token), of twice the KV bytes, and without the first 24 tokens. With that, they are met to 2 ms.
  test("generation", () => {
    const { computed, measured, percent } = generationTable[size];
    const total = parameterCounts(shape).total;
    const printedLine = decodeLine(
      { ...cost, weightBytes: total * 2, kvBytes: 2 * cost.kvBytes },
      rtx4090,
    );
    const formula = decodeLine(cost, rtx4090);
    for (const [i, tokens] of generationLengths.entries()) {
      const printed = computed[i]!;
      expect(Math.abs(lineTotalMs(printedLine, 24, tokens) - printed), `${tokens}`).toBeLessThan(2);
      const own = lineTotalMs(formula, 0, tokens);
      expect(own, `${tokens}: by (n-1)/W + B`).toBeLessThan(0.96 * printed);
      const share =
        measured[i] === undefined ? undefined : Math.round((printed / measured[i]) * 100);
      expect(share).toBe(percent[i]);
    }
  });
});

/** Sums of (n-1)/W + B up to these tokens: what the table of times should say. */
test("generation by the tables' own W and B", () => {
  const times = (["0.5B", "1.8B", "4B", "7B"] as const).map((size) => {
    const line = decodeLine(shapeCost(shapeOf(size), { weights: 16, kv: 16 }, "article"), rtx4090);
    return [2048, 16384].map((tokens) => Math.round(lineTotalMs(line, 0, tokens)));
  });
  expect(times).toEqual([
    [1946, 26237],
    [6155, 70569],
    [14271, 158614],
    [27881, 279937],
  ]);
});

test("the 7B at w8kv16 after 10000 tokens: printed 11.56, from 10000 / 2064 taken as 5", () => {
  const line = decodeLine(shapeCost(shapeOf("7B"), { weights: 8, kv: 16 }, "article"), rtx4090);
  expect(lineMs(line, 10_000).toFixed(2)).toBe("11.40");
  expect((5 + Number(line.firstMs.toFixed(2))).toFixed(2)).toBe("11.56");
});

test.each(intensities)("operations per byte: $device, $quoted", (row) => {
  const { teraops, gigabytes, quoted, device } = row;
  expect(Math.floor((teraops * 1000) / gigabytes)).toBe(quoted);
  const known = deviceNamed(device)!;
  // 494 TFLOPS are TF32's, which the table of devices does not have; 83 and 67 are roundings of what it has.
  if (teraops !== 494) {
    const rate = teraops === 1979 ? "int8" : "f32";
    const own = opsPerByte(known, rate) / (known.id === "rtx4090-article" ? 1.024 : 1);
    expect(Math.abs((own / (teraops * 1000)) * gigabytes - 1)).toBeLessThan(0.01);
  }
});

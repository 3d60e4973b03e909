// The report of a quantization as text: a line per tensor, then the totals. Pure functions.

import type {
  Estimate,
  QuantizedComparison,
  QuantizedTensor,
  QuantizeResult,
} from "../../src/index.ts";
import { bytesText, plural, tableText } from "./text.ts";

export function quantizeReportText(
  result: QuantizeResult,
  more: QuantizedComparison | undefined,
): string {
  const header = ["tensor", "shape", "from", "to", "before", "after", "error", "largest", ""];
  const rows = result.tensors.map((tensor) => [
    tensor.name,
    `[${tensor.shape.join(", ")}]`,
    tensor.from,
    tensor.to,
    bytesText(tensor.bytesBefore),
    bytesText(tensor.bytesAfter),
    percent(tensor.relativeError),
    percent(tensor.maxError),
    tensor.note ?? "",
  ]);
  const explained = more
    ? "error: root mean square error, relative to the root mean square of the weights; largest: the largest error of a weight, relative to the largest weight\n"
    : "";
  return `${tableText([header, ...rows], [4, 5, 6, 7])}${explained}\n${summary(result, more)}\n${writtenTypesText(result)}\n${result.warnings.map((text) => `Warning: ${text}.\n`).join("")}`;
}

/** Every type that is in the file, and the reason for each that is not the file's own. */
export function writtenTypesText({ types }: Pick<QuantizeResult, "types">): string {
  return types
    .map(({ type, tensors, bytes, reason, first }) => {
      const others = tensors > 1 ? ` and ${tensors - 1} more` : "";
      const why = reason === undefined ? "" : `: ${reason} (${first}${others})`;
      return `  ${type}: ${plural(tensors, "tensor")}, ${bytesText(bytes)}${why}`;
    })
    .join("\n");
}

function percent(share: number | undefined): string {
  return share === undefined ? "" : `${(share * 100).toFixed(3)}%`;
}

function summary(result: QuantizeResult, more: QuantizedComparison | undefined): string {
  const bits = (bytes: number) => ((bytes * 8) / result.parameters).toFixed(2);
  const { bytesBefore, bytesAfter } = result;
  const rows = [
    ["", "before", "after"],
    ["tensors", bytesText(bytesBefore), bytesText(bytesAfter)],
    ["bits per weight", bits(bytesBefore), bits(bytesAfter)],
  ];
  const worst = worstTensor(result.tensors);
  if (worst) rows.push(["largest error", "", `${percent(worst.relativeError)} (${worst.name})`]);
  if (!more) return tableText(rows, [1, 2]);
  const { tokensPerSecond: speed, perplexity } = more;
  const speedText = (value: number | undefined) =>
    value === undefined ? "not measured" : value.toFixed(1);
  rows.push(["limit here (tokens/s)", speedText(speed.before), speedText(speed.after)]);
  const qualityText = (value: Estimate | undefined) =>
    value === undefined ? "no text" : `${value.value.toFixed(3)} +/- ${value.error.toFixed(3)}`;
  rows.push(["perplexity", qualityText(perplexity.before), qualityText(perplexity.after)]);
  return `${tableText(rows, [1, 2])}${hints(more)}`;
}

function worstTensor(tensors: readonly QuantizedTensor[]): QuantizedTensor | undefined {
  const measured = tensors.filter(({ relativeError }) => relativeError !== undefined);
  return measured.toSorted((a, b) => b.relativeError! - a.relativeError!)[0];
}

function hints({ tokensPerSecond, perplexity }: QuantizedComparison): string {
  const lines: string[] = [];
  if (tokensPerSecond.after === undefined) {
    lines.push('(this machine has not been measured: "lantern machine" measures it)');
  }
  if (perplexity.after === undefined) lines.push("(-f FILE measures the perplexity on a text)");
  return lines.map((line) => `${line}\n`).join("");
}

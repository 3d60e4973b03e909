// A quantize report: before and after in a few numbers, then a line per tensor.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { qualityPicture } from "../../../../src/tools/perplexity/picture.ts";
import type { QuantizeReport } from "../api-types.ts";
import { bytesText, digits } from "../state/format.ts";
import { qualityPoints } from "../state/quality.ts";
import { ScrollX } from "./scroll-x.tsx";

type Tensor = QuantizeReport["tensors"][number];

export function QuantizeResults({
  model,
  report,
}: {
  model: string;
  report: QuantizeReport;
}): JSX.Element {
  return (
    <>
      <h2>
        {model} as {report.type}
      </h2>
      <Numbers report={report} />
      <Quality model={model} report={report} />
      <section class="card">
        <h2>Error of each tensor</h2>
        <Tensors tensors={report.tensors} />
      </section>
      <section class="card">
        <h2>To write the file</h2>
        <p>
          <code>lantern quantize MODEL.gguf OUT.gguf {report.type}</code>
        </p>
        <p class="hint">
          MODEL.gguf is the model's file; <code>lantern convert</code> makes one of other formats.
        </p>
      </section>
    </>
  );
}

/** Every type of this model that was measured on this text so far. */
function Quality({ model, report }: { model: string; report: QuantizeReport }): JSX.Element | null {
  const points = qualityPoints(model, report);
  if (points.length === 0) return null;
  const types = points.map(({ label, perplexity }) => `${label} ${perplexity.toFixed(3)}`);
  return (
    <section class="card">
      <h2>Perplexity by size</h2>
      <p class="hint">
        Try other types on the same text, and they join the picture. Further down is better, further
        left is smaller.
      </p>
      <img
        class="picture"
        src={`data:image/svg+xml,${encodeURIComponent(qualityPicture(points))}`}
        alt={`Perplexity by size: ${types.join(", ")}`}
      />
    </section>
  );
}

function Numbers({ report }: { report: QuantizeReport }): JSX.Element {
  const { bytesBefore, bytesAfter, parameters, tokensPerSecond: speed, perplexity } = report;
  const bits = (bytes: number) => digits((8 * bytes) / parameters);
  const quality = perplexity.before && perplexity.after;
  const facts: [string, string, string][] = [
    [
      "Size",
      bytesText(bytesAfter),
      `before: ${bytesText(bytesBefore)}; ${digits((100 * bytesAfter) / bytesBefore)}% of it is left`,
    ],
    ["Bits per weight", bits(bytesAfter), `before: ${bits(bytesBefore)}`],
    [
      "Speed limit",
      speed.after === undefined ? "–" : `${digits(speed.after)} tokens/s`,
      speed.before === undefined
        ? "this machine has not been measured. Measure it on the Machine page"
        : `before: ${digits(speed.before)}; the limit of this machine`,
    ],
    [
      "Perplexity",
      quality ? `${quality.value.toFixed(3)} ± ${quality.error.toFixed(3)}` : "–",
      quality
        ? `before: ${perplexity.before!.value.toFixed(3)}; lower is better`
        : "add a text to measure it",
    ],
  ];
  return (
    <dl class="numbers">
      {facts.map(([name, value, note]) => (
        <div key={name} class="card">
          <dt>{name}</dt>
          <dd>
            <b>{value}</b>
            <span class="hint">{note}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Rows shown at first: models have hundreds. */
const few = 12;

function Tensors({ tensors }: { tensors: readonly Tensor[] }): JSX.Element {
  const [all, setAll] = useState(false);
  const changed = tensors.filter(({ relativeError }) => relativeError !== undefined);
  const sorted = changed.toSorted((a, b) => b.relativeError! - a.relativeError!);
  const rest = tensors.filter((tensor) => !changed.includes(tensor));
  const shown = all ? [...sorted, ...rest] : sorted.slice(0, few);
  return (
    <>
      <p class="hint">
        Error: root mean square error, relative to the root mean square of the weights. Largest: the
        largest error of a weight, relative to the largest weight. The worst come first.
      </p>
      <ScrollX label="Error of each tensor">
        <table>
          <thead>
            <tr>
              <th scope="col">Tensor</th>
              <th scope="col" class="number">
                Error
              </th>
              <th scope="col" class="number">
                Largest
              </th>
              <th scope="col" class="number">
                Size
              </th>
              <th scope="col">Type</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((tensor) => (
              <tr key={tensor.name}>
                <th scope="row" title={`${tensor.name} [${tensor.shape.join(", ")}]`}>
                  {tensor.name.replace(/\.weight$/, "")}
                </th>
                <td class="number">{percent(tensor.relativeError)}</td>
                <td class="number">{percent(tensor.maxError)}</td>
                <td class="number">{bytesText(tensor.bytesAfter)}</td>
                <td title={tensor.note}>
                  {tensor.from === tensor.to ? tensor.to : `${tensor.from} → ${tensor.to}`}
                  {tensor.note && " *"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollX>
      <Notes tensors={shown} />
      {tensors.length > shown.length && (
        <div class="row">
          <button type="button" onClick={() => setAll(true)}>
            Show all {tensors.length}
          </button>
        </div>
      )}
    </>
  );
}

/** Why tensors have another type than the file's; each reason once. */
function Notes({ tensors }: { tensors: readonly Tensor[] }): JSX.Element {
  const notes = [...new Set(tensors.flatMap(({ note }) => (note === undefined ? [] : [note])))];
  return (
    <>
      {notes.map((note) => (
        <p key={note} class="hint">
          * {note}
        </p>
      ))}
    </>
  );
}

function percent(share: number | undefined): string {
  return share === undefined ? "" : `${(100 * share).toFixed(2)}%`;
}

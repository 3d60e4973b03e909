// A table whose first column names the rows; the others are numbers, or as short as numbers.

import type { JSX } from "preact";
import { ScrollX } from "./scroll-x.tsx";

export function NumberTable(props: {
  label: string;
  head: readonly string[];
  rows: readonly (readonly string[])[];
}): JSX.Element {
  const { label, head, rows } = props;
  return (
    <ScrollX label={label}>
      <table>
        <thead>
          <tr>
            {head.map((name, i) => (
              <th key={name} scope="col" class={i > 0 ? "number" : ""}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, ...cells]) => (
            <tr key={[name, ...cells].join()}>
              <th scope="row">{name}</th>
              {cells.map((cell, i) => (
                <td key={head[i + 1]} class="number">
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollX>
  );
}

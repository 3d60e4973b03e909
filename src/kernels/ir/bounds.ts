// Finds the buffer that each memory access of a kernel must stay in. A pointer is a parameter, or a parameter plus an offset, so every
// access comes from a parameter and must stay in that parameter's buffer. This file finds the parameters, from the kernel
// alone; interpret.ts and lower/wasm-guard.ts check the accesses, in guard mode only (docs/inside/processors.md).

import type { Kernel, Statement } from "./kernel.ts";
import { printStatement, RegisterNames } from "./print.ts";

/** A piece of memory: addresses in [from, to). */
export interface BufferRange {
  /** For messages: a weight, a value, "tail tiles of thread 1". */
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** For every pointer register (by id), the numbers of the parameters that it comes from: several for some variables. */
export function pointerOrigins(kernel: Kernel): ReadonlyMap<number, readonly number[]> {
  const origins = new Map<number, Set<number>>();
  kernel.params.forEach(({ id, type }, index) => {
    if (type === "ptr") origins.set(id, new Set([index]));
  });
  // The value that a variable has at the end of a loop is read at its beginning: repeats until nothing is new.
  while (addOrigins(kernel.body, origins));
  return new Map([...origins].map(([id, params]) => [id, [...params].sort((a, b) => a - b)]));
}

/** Returns whether anything was new. */
function addOrigins(statements: readonly Statement[], origins: Map<number, Set<number>>): boolean {
  let isNew = false;
  const flow = (from: number, to: number) => {
    const known = origins.get(to) ?? new Set();
    origins.set(to, known);
    for (const param of origins.get(from) ?? []) {
      if (!known.has(param)) isNew = true;
      known.add(param);
    }
  };
  for (const statement of statements) {
    if (statement.kind === "loop") isNew = addOrigins(statement.body, origins) || isNew;
    else if (statement.kind === "set") {
      if (statement.variable.type === "ptr") flow(statement.value.id, statement.variable.id);
    } else if (statement.out?.type === "ptr") flow(statement.args[0]!.id, statement.out.id);
  }
  return isNew;
}

/** Each statement's line in the printed kernel, counted as in print.ts and verify.ts. */
export function linesOf(kernel: Kernel): ReadonlyMap<Statement, number> {
  const lines = new Map<Statement, number>();
  let line = 1;
  const visit = (statements: readonly Statement[]): void => {
    for (const statement of statements) {
      lines.set(statement, ++line);
      if (statement.kind === "loop") visit(statement.body);
    }
  };
  visit(kernel.body);
  return lines;
}

/** "line 7, v3 = f32v.load [x + 16]": for messages. */
export function statementText(kernel: Kernel, line: number): string {
  for (const [statement, at] of linesOf(kernel)) {
    if (at === line) return `line ${line}, ${printStatement(statement, new RegisterNames(kernel))}`;
  }
  return `line ${line}`;
}

/** The message for an access outside its buffer. `bytes` undefined: their number is not known. */
export function outsideText(
  address: number,
  bytes: number | undefined,
  buffers: readonly (BufferRange | undefined)[],
): string {
  const access = `address ${address}${bytes === undefined ? "" : `, ${bytes} bytes`}`;
  const known = buffers.filter((buffer) => buffer !== undefined);
  if (known.length === 0) return `${access}: the pointer was given in no buffer`;
  const places = known.map(({ name, from, to }) => {
    const where =
      address < from
        ? `${from - address} bytes before its start`
        : `${address - to} bytes from its end`;
    return `"${name}", ${from} to ${to} (${where})`;
  });
  return `${access}: outside ${places.join(" and ")}`;
}

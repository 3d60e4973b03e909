// What a kernel may touch: the buffers that its pointers were given in. A pointer is a parameter, or made of one by adding to
// it; so every access of memory has a parameter that it comes from, and must stay in that parameter's buffer. Known here
// from the kernel alone; interpret.ts and lower/wasm-guard.ts check it, in guard mode only (docs/native.md).

import type { Kernel, Statement } from "./kernel.ts";
import { printStatement, RegisterNames } from "./print.ts";

/** A piece of memory: addresses from `from` up to `to`, which is not in it. */
export interface BufferRange {
  /** For messages: a weight, a value, "tail tiles of thread 1". */
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** For every pointer register (by id), the numbers of the parameters that it comes from: one, unless it is set to several. */
export function pointerOrigins(kernel: Kernel): ReadonlyMap<number, readonly number[]> {
  const origins = new Map<number, Set<number>>();
  kernel.params.forEach(({ id, type }, index) => {
    if (type === "ptr") origins.set(id, new Set([index]));
  });
  // What a variable is set to at the end of a loop is seen at its beginning: again until nothing is new.
  while (addOrigins(kernel.body, origins));
  return new Map([...origins].map(([id, params]) => [id, [...params].sort((a, b) => a - b)]));
}

/** Whether anything was new. */
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

/** Each statement's line in the printed kernel, counted as print.ts and the verifier do. */
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

/** What is wrong with an access, in words. `bytes` undefined: how many is not known. */
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

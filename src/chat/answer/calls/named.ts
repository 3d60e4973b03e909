// The name of a call between markers, its arguments as JSON: `[TOOL_CALLS]f[CALL_ID]1[ARGS]{...}`, `<function=f>{...}`.

import type { NamedForm } from "../../../api/answer-format.ts";
import { copyJson, NotJson } from "../json-value.ts";
import { has, type Reading } from "../source.ts";
import { type CallContext, countedName, NoCall, nameUpTo } from "./call-reader.ts";

export function* readNamedCall({ source, sink }: CallContext, form: NamedForm): Reading<void> {
  let id = "";
  if (form.idBeforeName !== undefined) id = yield* nameUpTo(source, form.idBeforeName);
  let name: string;
  if (form.idAfterName === undefined) {
    const read = yield* countedName(source, form.afterName);
    name = read.name;
    if (form.idPrefix !== undefined)
      id = `${form.idPrefix}${name}${form.afterName.first}${read.count}`;
  } else {
    // Models leave the id out at times.
    const both = yield* nameUpTo(source, form.afterName.first);
    const at = both.indexOf(form.idAfterName);
    name = at < 0 ? both : both.slice(0, at);
    if (at >= 0) id = both.slice(at + form.idAfterName.length);
  }
  if (name.trim() === "") throw new NoCall("a call without a name");
  sink.call(name.trim(), id.trim());
  if (!(yield* has(source, 1))) return;
  try {
    yield* copyJson(source, (text) => sink.arguments(text));
  } catch (error) {
    if (!(error instanceof NotJson)) throw error;
    throw new NoCall(error.message, { cause: error });
  }
  sink.endCall();
}

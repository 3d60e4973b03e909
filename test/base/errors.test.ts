// Whatever was thrown has words: for the end of a sentence, and for the report of a bug.

import { describe, expect, test } from "vitest";
import * as z from "zod";
import { errorToFacts, factsToError } from "../../src/base/error-facts.ts";
import { detailsOf, messageOf, SourceError, UsageError } from "../../src/base/errors.ts";

/** As promises of NATS's client reject when the connection is lost. */
function withoutStack(message = ""): Error {
  const error = new Error(message);
  error.stack = "";
  return error;
}

class Named extends Error {
  override name = "ClosedConnectionError";
}

const circle = new Error("");
circle.cause = circle;

const throwing = {
  get message(): string {
    throw new Error("no");
  },
};

const cases: readonly [string, unknown, string][] = [
  ["a LanternError", new UsageError("got 1, expected 2"), "got 1, expected 2"],
  ["an empty error", new Error(""), "Error, without a message"],
  ["an error without a stack", withoutStack(), "Error, without a message"],
  ["an error with a name only", new Named(), "ClosedConnectionError, without a message"],
  [
    "an error with a code",
    Object.assign(new Error(" "), { code: "EPIPE" }),
    "Error EPIPE, without a message",
  ],
  [
    "an error whose cause has words",
    new Error("", { cause: new Error("the disk is full") }),
    "the disk is full",
  ],
  ["an error that is its own cause", circle, "Error, without a message"],
  ["several errors", new AggregateError([new Error("a"), new Error("b")]), "a; b"],
  [
    "a message that is no text",
    Object.assign(new Error("x"), { message: 7 }),
    "Error, without a message",
  ],
  [
    "a name that is no text",
    Object.assign(new Error(""), { name: 7 }),
    "an error without a message",
  ],
  [
    "an error of zod, whose message is all of its issues as JSON",
    z.object({ a: z.object({ b: z.string() }), c: z.number() }).safeParse({ a: { b: 7 } }).error,
    "a.b: expected string, received number; c: expected number, received undefined",
  ],
  [
    "more issues than help",
    z.array(z.string()).safeParse(Array.from({ length: 9 }, () => 7)).error,
    `${[0, 1, 2, 3, 4].map((at) => `${at}: expected string, received number`).join("; ")}; and 4 more`,
  ],
  ["an error whose issues are none", Object.assign(new Error("x"), { issues: [7] }), "x"],
  ["a string", "it broke", "it broke"],
  ["an empty string", "", "an error without a message"],
  ["undefined", undefined, "undefined"],
  ["null", null, "null"],
  ["a number", 42, "42"],
  ["a symbol", Symbol("s"), "Symbol(s)"],
  ["an object with a message", { message: "of another realm" }, "of another realm"],
  ["an object", {}, "an object"],
  ["an object without a prototype", Object.create(null), "an object"],
  ["an object whose getter fails", throwing, "an object"],
];

describe.each(cases)("%s", (_, thrown, expected) => {
  test("has a message", () => {
    expect(messageOf(thrown)).toBe(expected);
  });

  test("has details, which contain it", () => {
    expect(detailsOf(thrown)).toContain(expected);
  });

  test("keeps its words between threads and machines", () => {
    expect(messageOf(factsToError(structuredClone(errorToFacts(thrown))))).toContain(expected);
  });
});

test("details have the stack, and those of its causes", () => {
  const cause = new SourceError("the disk is gone", { cause: withoutStack("a cable") });
  const details = detailsOf(new Error("it broke", { cause }));
  expect(details).toMatch(
    /^Error: it broke\n {4}at [\s\S]*\n {2}because: SourceError: the disk is gone\n {4}at [\s\S]*\n {2}because: a cable$/,
  );
});

// Stop strings: exact cases by hand, then random texts over a tiny alphabet, cut at random, against a
// search of the whole text that is written without an automaton.

import { describe, expect, test } from "vitest";
import { createRng } from "../../src/engine/rng.ts";
import { StopMatcher } from "../../src/engine/stop-strings.ts";

interface Outcome {
  text: string;
  matched: string | undefined;
}

function feed(stops: readonly string[], pieces: readonly string[]): Outcome & { steps: string[] } {
  const matcher = new StopMatcher(stops);
  const steps = pieces.map((piece) => matcher.push(piece));
  return { steps, text: steps.join("") + matcher.end(), matched: matcher.matched };
}

/** The definition: the first end of a stop string in the text; of those that end there, the longest. */
function searchWhole(stops: readonly string[], text: string): Outcome {
  for (let end = 1; end <= text.length; end++) {
    const here = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    if (here.length === 0) continue;
    const matched = here.reduce((a, b) => (b.length > a.length ? b : a));
    return { text: text.slice(0, end - matched.length), matched };
  }
  return { text, matched: undefined };
}

/** How much of the end of `text` could still become a stop string. */
function mustHold(stops: readonly string[], text: string): number {
  for (let length = text.length; length > 0; length--) {
    const ending = text.slice(-length);
    if (stops.some((stop) => stop.length > length && stop.startsWith(ending))) return length;
  }
  return 0;
}

describe("by hand", () => {
  test("without stop strings everything passes at once", () => {
    expect(feed([], ["Hello", " world"]).steps).toEqual(["Hello", " world"]);
  });

  test("a stop string within a piece ends the text before it; the rest is dropped", () => {
    const { steps, matched } = feed(["STOP"], ["one STOP two", "three"]);
    expect(steps).toEqual(["one ", ""]);
    expect(matched).toBe("STOP");
  });

  test("one that begins in the middle of a piece and ends two pieces later", () => {
    const { steps, matched } = feed(["\nUser:"], ["Fine.\n", "Us", "er: hi"]);
    expect(steps).toEqual(["Fine.", "", ""]);
    expect(matched).toBe("\nUser:");
  });

  test("what was held is given when it turns out harmless, no sooner, no later", () => {
    expect(feed(["</s>"], ["a<", "/", "b", "<"]).steps).toEqual(["a", "", "</b", ""]);
    expect(feed(["</s>"], ["a<", "/", "b", "<"]).text).toBe("a</b<");
  });

  test("the held end shrinks when only its tail can still match", () => {
    expect(feed(["aab"], ["aa", "a", "a", "b"]).steps).toEqual(["", "a", "a", ""]);
    expect(feed(["aab"], ["aa", "a", "a", "b"]).matched).toBe("aab");
  });

  test("several: the one that is complete first wins", () => {
    expect(feed(["world", "lo"], ["hello world"])).toMatchObject({ text: "hel", matched: "lo" });
    expect(feed(["abcd", "c"], ["xabcd"])).toMatchObject({ text: "xab", matched: "c" });
    expect(feed(["ab", "abc"], ["abc"])).toMatchObject({ text: "", matched: "ab" });
  });

  test("several that are complete at once: the longest wins", () => {
    expect(feed(["c", "abc", "bc"], ["xabc"])).toMatchObject({ text: "x", matched: "abc" });
  });

  test("a shorter one inside a longer one that does not come", () => {
    expect(feed(["abcd", "bc"], ["ab", "c"])).toMatchObject({ text: "a", matched: "bc" });
  });

  test("emoji are never cut in half", () => {
    // The same high surrogate begins both emoji.
    const { steps } = feed(["\u{1F600}!"], ["\u{1F601}", "\u{1F600}", "?"]);
    expect(steps).toEqual(["\u{1F601}", "", "\u{1F600}?"]);
  });

  test("refuses what is no text", () => {
    for (const stop of ["", 5, undefined, "\ud83d"]) {
      expect(() => new StopMatcher(["ok", stop as string])).toThrow(/stop\[1\]: got .*, expected/);
    }
  });
});

describe("any split of any text", () => {
  test("gives what the whole text gives, and holds back only what it must", () => {
    const rng = createRng(2024);
    const below = (limit: number) => Math.floor(rng.uniform() * limit);
    const word = (length: number) => Array.from({ length }, () => "ab\n"[below(3)]).join("");
    let matches = 0;
    for (let round = 0; round < 4000; round++) {
      const stops = Array.from({ length: below(4) }, () => word(1 + below(6)));
      const text = word(below(30));
      const pieces: string[] = [];
      for (let at = 0; at < text.length; ) {
        const length = below(5);
        pieces.push(text.slice(at, at + length));
        at += length;
      }
      const expected = searchWhole(stops, text);
      if (expected.matched !== undefined) matches++;

      const matcher = new StopMatcher(stops);
      let seen = "";
      let given = "";
      for (const piece of pieces) {
        seen += piece;
        given += matcher.push(piece);
        const soFar = searchWhole(stops, seen);
        const held = soFar.matched === undefined ? mustHold(stops, seen) : 0;
        expect(given).toBe(soFar.text.slice(0, soFar.text.length - held));
      }
      expect(given + matcher.end()).toBe(expected.text);
      expect(matcher.matched).toBe(expected.matched);
    }
    // Both outcomes are common in the sample.
    expect(matches).toBeGreaterThan(1000);
    expect(matches).toBeLessThan(3500);
  });
});

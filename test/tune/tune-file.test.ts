// The file of times: what is printed is read again, and what is broken is refused with a line number.

import { describe, expect, test } from "vitest";
import { FormatError } from "../../src/base/errors.ts";
import { mergeTuneFiles } from "../../src/tune/merge.ts";
import { parseTuneFile, printTuneFile } from "../../src/tune/tune-file.ts";
import { resealed, sampleFile } from "./sample.ts";

describe("a tune file", () => {
  const text = printTuneFile(sampleFile);

  test("is read as it was written", () => {
    expect(parseTuneFile(text, "tune.txt")).toEqual(sampleFile);
  });

  test("may say how noisy the machine was, and what a wake-up takes", () => {
    const [first, ...rest] = sampleFile.groups;
    const file = {
      ...sampleFile,
      notify: { us: 9.8, low: 6.1, high: 31 },
      groups: [{ ...first!, noise: 0.021 }, ...rest],
    };
    const printed = printTuneFile(file);
    expect(printed).toMatch(/^notify 9\.8 6\.1 31\.0$/m);
    expect(printed).toMatch(/^group q4_0 1024 512 threads=1 noise=0\.021$/m);
    expect(parseTuneFile(printed, "tune.txt")).toEqual(file);
    // A later tune that does not measure the wake-up keeps it.
    expect(mergeTuneFiles(file, sampleFile).notify).toEqual(file.notify);
  });

  test("may have comments and empty lines", () => {
    const commented = resealed(text.replace("group", "\n# a note\ngroup"));
    expect(parseTuneFile(commented, "tune.txt")).toEqual(sampleFile);
  });

  const broken: readonly [string, (text: string) => string, RegExp][] = [
    ["another version", (t) => t.replace("lantern-tune 2", "lantern-tune 9"), /line 2.*version 2/],
    [
      "the version before",
      (t) => t.replace("lantern-tune 2", "lantern-tune 1"),
      /lantern tune makes/,
    ],
    ["an empty file", () => "", /line 1.*lantern-tune/],
    ["another file", () => "GGUF\0\0", /line 1.*lantern-tune/],
    ["no processor", (t) => t.replace(/^cpu .*\n/m, ""), /line 3.*cpu/],
    ["cores that are no number", (t) => t.replace("cores 2", "cores many"), /whole number/],
    ["a profile out of order", (t) => t.replace("profile 1", "profile 7"), /profile 1/],
    ["a profile without its variant", (t) => t.replace(/ variant=\S+/, ""), /profile 0/],
    ["a group without threads", (t) => t.replace(/ threads=1/, ""), /group TYPE N K threads=T/],
    ["times before a group", (t) => t.replace(/^group .*\n/m, ""), /a group before its times/],
    ["too few times", (t) => t.replace(/^ +1 .*$/m, "1 2.0 3.0"), /2 for each of 3 profiles/],
    ["times that are none", (t) => t.replace("10.0 100.0", "10.0 NaN"), /microseconds/],
    ["a noise that is none", (t) => t.replace("threads=1", "threads=1 noise=x"), /noise=X/],
    [
      "a wake-up that is none",
      (t) => t.replace("date", "notify 1 x 2\ndate").replace(/^(notify.*\n)(date.*\n)/m, "$2$1"),
      /notify MEDIAN/,
    ],
    ["half a pair", (t) => t.replace("10.0 100.0", "- 100.0"), /microseconds/],
    ["negative times", (t) => t.replace("10.0 100.0", "10.0 -1"), /microseconds/],
    ["numbers of tokens that go down", (t) => t.replace(/^ +12 /m, "1 "), /ascending/],
  ];

  test.each(broken)("with %s is refused", (_, damage, message) => {
    const damaged = resealed(damage(text));
    expect(damaged).not.toBe(text);
    expect(() => parseTuneFile(damaged, "tune.txt")).toThrow(FormatError);
    expect(() => parseTuneFile(damaged, "tune.txt")).toThrow(message);
  });

  test("is refused where it was cut off at any line, or within one, and says so", () => {
    const starts = [...text.matchAll(/\n/g)].map(({ index }) => index + 1);
    const cuts = starts.filter((at) => at < text.length).flatMap((at) => [at, at + 1]);
    for (const at of [...cuts, text.length - 1]) {
      const cut = text.slice(0, at);
      // Of the first line alone, nothing says that it is one of ours.
      const message = at < starts[0]! ? /line 1/ : /tune\.txt: end: .*the file was cut off/;
      expect(() => parseTuneFile(cut, "tune.txt"), `${at}`).toThrow(message);
    }
  });

  test("is refused where anything in it was changed, and says so", () => {
    const changes: readonly ((text: string) => string)[] = [
      (t) => t.replace("10.0 100.0", "10.0 10.0"),
      (t) => t.replace("Example CPU", "Another CPU"),
      (t) => t.replace("cores 2", "cores 3"),
      (t) => t.replace("group q4_0", "# a note\ngroup q4_0"),
      (t) =>
        t
          .replace(/\n/g, "\r\n")
          .replace(/\r\n$/, "\n")
          .replace(/\r\n(end .*\n)$/, "\n$1"),
      (t) => t.replace(/end .*/, "end 00000000"),
    ];
    for (const change of changes) {
      const changed = change(text);
      expect(changed).not.toBe(text);
      expect(() => parseTuneFile(changed, "tune.txt")).toThrow(
        /tune\.txt: end: .*checksum [0-9a-f]{8}: the file was changed/,
      );
    }
  });
});

describe("two measurements", () => {
  test("become one: groups that were measured again are the new ones, profiles are matched by what they are", () => {
    const [first, second] = sampleFile.groups;
    const older = { ...sampleFile, groups: [first!, second!] };
    const again = {
      ...first!,
      lines: [{ m: 1, times: [{ init: 1, compute: 2 }] }],
    };
    const newer = { ...sampleFile, profiles: [sampleFile.profiles[2]!], groups: [again] };
    const merged = mergeTuneFiles(older, newer);
    expect(merged.profiles.map(({ variant }) => variant)).toEqual([
      "4s.compact",
      "8x4.compact",
      "16x2.compact",
    ]);
    expect(merged.groups).toHaveLength(2);
    const kept = merged.groups.find(({ threads }) => threads === second!.threads)!;
    // Profile 2 of the old file is profile 0 now.
    expect(kept.lines[0]!.times[0]).toEqual(second!.lines[0]!.times[2]);
    expect(kept.lines[0]!.times[1]).toEqual(second!.lines[0]!.times[0]);
    const replaced = merged.groups.find(({ threads }) => threads === first!.threads)!;
    expect(replaced.lines).toEqual([
      { m: 1, times: [{ init: 1, compute: 2 }, undefined, undefined] },
    ]);
  });
});

test("profiles that came later have no times in earlier lines, and are read so again", () => {
  const later = { backend: "cpu", level: 3, variant: "4s.compact.unroll2", idle: "spin" as const };
  const file = { ...sampleFile, profiles: [...sampleFile.profiles, later] };
  const [group] = parseTuneFile(printTuneFile(file), "tune.txt").groups;
  expect(group!.lines[0]!.times).toEqual([...sampleFile.groups[0]!.lines[0]!.times, undefined]);
});

// Formats numbers and times for people.

export function bytesText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at++;
  }
  return `${digits(value)} ${units[at]}`;
}

/** Three significant digits: 1234 -> "1,234", 12.34 -> "12.3", 0.1234 -> "0.123". */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  const places = Math.min(3, Math.max(0, 2 - size));
  return grouped(value, places);
}

/** 1234567 -> "1,234,567". Without Intl, whose tables take a frame or two to load, in the middle of the first answer. */
export function grouped(value: number, places: number = 0): string {
  const [whole, part = ""] = value.toFixed(places).split(".");
  const tail = part.replace(/0+$/, "");
  return whole!.replaceAll(/\B(?=(?:\d{3})+$)/g, ",") + (tail === "" ? "" : `.${tail}`);
}

/** 1.2e9 -> "1.2 G" */
export function rateText(perSecond: number, unit: string): string {
  const prefixes = ["", "K", "M", "G", "T", "P"];
  let value = perSecond;
  let at = 0;
  while (value >= 1000 && at < prefixes.length - 1) {
    value /= 1000;
    at++;
  }
  return `${digits(value)} ${prefixes[at]}${unit}`;
}

export function msText(ms: number): string {
  if (ms < 1) return `${digits(ms * 1000)} µs`;
  if (ms < 1000) return `${digits(ms)} ms`;
  if (ms < 60_000) return `${digits(ms / 1000)} s`;
  return `${digits(ms / 60_000)} min`;
}

export function countText(count: number): string {
  if (count >= 1e9) return `${digits(count / 1e9)}B`;
  if (count >= 1e6) return `${digits(count / 1e6)}M`;
  return grouped(count);
}

const minute = 60_000;
const day = 24 * 60 * minute;

/** "just now", "12 min ago", "Tue 14:03", "3 Nov" */
export function agoText(time: number, now: number): string {
  const ago = now - time;
  if (ago < minute) return "just now";
  if (ago < 60 * minute) return `${Math.floor(ago / minute)} min ago`;
  const date = new Date(time);
  if (ago < day) return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (ago < 6 * day) return date.toLocaleDateString([], { weekday: "long" });
  return date.toLocaleDateString([], { day: "numeric", month: "short" });
}

/** The load that made an answer slower; undefined: none that is known. */
export function othersText(timings: { othersCores?: number; cores?: number }): string | undefined {
  const { othersCores, cores } = timings;
  if (othersCores === undefined || cores === undefined) return undefined;
  return `others used ${othersCores.toFixed(1)} of ${cores} cores`;
}

/** The limiting resource, in words that name the part of the machine. */
export function resourceText(resource: string): string {
  const words: Readonly<Record<string, string>> = {
    bandwidth: "memory bandwidth",
    arithmetic: "arithmetic",
  };
  return words[resource] ?? resource;
}

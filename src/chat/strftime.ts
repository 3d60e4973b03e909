// strftime for chat templates ("Today Date: 26 Jul 2024"). Always in English, from tables here: a prompt must not
// change with the user's locale.

const MONTHS =
  "January February March April May June July August September October November December".split(
    " ",
  );
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

const pad = (value: number, width = 2): string => String(value).padStart(width, "0");

const directives: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => pad(date.getFullYear() % 100),
  m: (date) => pad(date.getMonth() + 1),
  d: (date) => pad(date.getDate()),
  B: (date) => MONTHS[date.getMonth()]!,
  b: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  A: (date) => DAYS[date.getDay()]!,
  a: (date) => DAYS[date.getDay()]!.slice(0, 3),
  H: (date) => pad(date.getHours()),
  I: (date) => pad(date.getHours() % 12 || 12),
  M: (date) => pad(date.getMinutes()),
  S: (date) => pad(date.getSeconds()),
  p: (date) => (date.getHours() < 12 ? "AM" : "PM"),
  "%": () => "%",
};

/** Local time; "%-d" drops leading zeros; an unknown directive is kept. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)(.)/gsu, (whole, dash: string, letter: string) => {
    const text = Object.hasOwn(directives, letter) ? directives[letter]!(date) : undefined;
    if (text === undefined) return whole;
    return dash ? text.replace(/^0+(?=.)/, "") : text;
  });
}

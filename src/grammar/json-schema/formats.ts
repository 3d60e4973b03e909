// The formats of strings as regular expressions over the whole string, and the ranges that number formats stand for.

import { byName } from "../../base/by-name.ts";

const octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const ipv4 = `${octet}(\\.${octet}){3}`;
const label = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const hostname = `${label}(\\.${label})*`;
const date =
  "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))";
const time =
  "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
const h16 = "[0-9a-fA-F]{1,4}";
const ls32 = `(${h16}:${h16}|${ipv4})`;
const ipv6 = `((${h16}:){6}${ls32}|::(${h16}:){5}${ls32}|(${h16})?::(${h16}:){4}${ls32}|((${h16}:){0,1}${h16})?::(${h16}:){3}${ls32}|((${h16}:){0,2}${h16})?::(${h16}:){2}${ls32}|((${h16}:){0,3}${h16})?::${h16}:${ls32}|((${h16}:){0,4}${h16})?::${ls32}|((${h16}:){0,5}${h16})?::${h16}|((${h16}:){0,6}${h16})?::)`;
const encoded = "%[0-9a-fA-F]{2}";
const pchar = `([A-Za-z0-9._~!$&'()*+,;=:@-]|${encoded})`;
const authority = `(([A-Za-z0-9._~!$&'()*+,;=:-]|${encoded})*@)?(\\[${ipv6}\\]|([A-Za-z0-9._~!$&'()*+,;=-]|${encoded})*)(:[0-9]*)?`;
const tail = `(\\?(${pchar}|[/?])*)?(#(${pchar}|[/?])*)?`;
const scheme = "[A-Za-z][A-Za-z0-9+.-]*";
const uri = `${scheme}:(//${authority}(/${pchar}*)*|/(${pchar}+(/${pchar}*)*)?|${pchar}+(/${pchar}*)*|)${tail}`;
const segmentNoColon = `([A-Za-z0-9._~!$&'()*+,;=@-]|${encoded})+`;
const relative = `(//${authority}(/${pchar}*)*|/(${pchar}+(/${pchar}*)*)?|${segmentNoColon}(/${pchar}*)*|)${tail}`;
const atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const email = `(${atom}(\\.${atom})*|"([^"\\\\]|\\\\.)*")@(${hostname}|\\[${ipv4}\\]|\\[IPv6:${ipv6}\\])`;
const number = "[0-9]+";
const duration = `P((${number}D|${number}M(${number}D)?|${number}Y(${number}M(${number}D)?)?)(T(${number}H(${number}M(${number}S)?)?|${number}M(${number}S)?|${number}S))?|T(${number}H(${number}M(${number}S)?)?|${number}M(${number}S)?|${number}S)|${number}W)`;
const pointer = "(/([^/~]|~[01])*)*";

export const STRING_FORMATS: Readonly<Record<string, string>> = byName({
  "date-time": `${date}[tT]${time}`,
  date,
  time,
  duration,
  email,
  "idn-email": "[^@\\s]+@[^@\\s]+",
  hostname,
  "idn-hostname": "[^\\s.]+(\\.[^\\s.]+)*",
  ipv4,
  "ip-address": ipv4,
  ipv6,
  uuid: "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
  uri,
  "uri-reference": `(${uri}|${relative})`,
  iri: `${scheme}:\\S*`,
  "iri-reference": "\\S*",
  "uri-template": "([^\\s{}]|\\{[^\\s{}]+\\})*",
  "json-pointer": pointer,
  "relative-json-pointer": `(0|[1-9][0-9]*)(#|${pointer})`,
});

/** Formats of OpenAPI for numbers. */
export const NUMBER_FORMATS: Readonly<Record<string, readonly [low: number, high: number]>> =
  byName({
    int8: [-128, 127],
    int16: [-32_768, 32_767],
    int32: [-2_147_483_648, 2_147_483_647],
    int64: [-(2 ** 63 - 1024), 2 ** 63 - 1024], // the nearest that a float64 holds
    uint8: [0, 255],
    uint16: [0, 65_535],
    uint32: [0, 4_294_967_295],
    uint64: [0, 2 ** 64 - 2048],
  });

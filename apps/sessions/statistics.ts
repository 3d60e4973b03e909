// The schemas of an answer's statistics and calls, for the database and imported files.

import * as z from "zod";
import { callStates, type MessageTimings, type MessageTokens, type ToolCall } from "./session.ts";

const count = z.int().min(0);
const measure = z.number().min(0).nullable();
const shortText = z.string().max(10_000);

export const tokensSchema: z.ZodType<MessageTokens> = z.strictObject({
  prompt: count,
  cached: count.nullable(),
  generated: count,
  reasoning: count.exactOptional(),
  dropped: count.exactOptional(),
});

export const timingsSchema: z.ZodType<MessageTimings> = z.strictObject({
  msToFirstToken: measure,
  tokensPerSecond: measure,
  promptMs: measure,
  generatedMs: measure,
  reasoningMs: z.number().min(0).exactOptional(),
  percentOfLimit: measure,
  boundBy: shortText.nullable(),
  limitIsQuick: z.boolean().exactOptional(),
  othersCores: z.number().min(0).exactOptional(),
  cores: z.number().min(1).exactOptional(),
});

const longText = z.string().max(10_000_000);

export const callsSchema: z.ZodType<ToolCall[]> = z
  .array(
    z.strictObject({
      id: z.string().min(1).max(200),
      name: z.string().max(1000),
      arguments: longText,
      state: z.enum(callStates),
      result: longText.nullable(),
      by: z.string().max(1000).nullable(),
    }),
  )
  .max(1000);

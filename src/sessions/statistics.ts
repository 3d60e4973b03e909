// The schema of an answer's statistics, for the database and imported files.

import * as z from "zod";
import type { MessageTimings, MessageTokens } from "./session.ts";

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
});

// Ranks documents by how well they answer a query: POST /v1/rerank, with Jina's fields and answer, as in llama.cpp; and
// those of Hugging Face's TEI, if the body has "texts".

import * as z from "zod";
import type { RankedDocument } from "../../../src/index.ts";
import { type FieldRules, readFields } from "../body.ts";
import { rankDocuments } from "../embed.ts";
import { invalidRequest, openaiErrors } from "../errors.ts";
import { documentInput, textInput } from "../inputs.ts";
import { type Call, json, type Route, type RouteFamily } from "../route.ts";

const rerankFields = z.object({
  model: z.string().optional(),
  query: z.string(),
  documents: documentInput.optional(),
  top_n: z.int().min(1).optional(),
  return_documents: z.boolean().optional(),
  // TEI's field.
  texts: textInput.optional(),
  return_text: z.boolean().optional(),
  raw_scores: z.boolean().optional(),
});

const rules: FieldRules = {
  // `truncate` and its direction ask to cut long texts: they are refused instead, with the numbers.
  accepted: ["user", "truncate", "truncation_direction"],
  refused: { rank_fields: { why: "documents are texts; send the fields as one text" } },
};

async function rerank(call: Call): Promise<Response> {
  const fields = await readFields(call, rerankFields, rules);
  const documents = documentsOf(fields.documents ?? fields.texts ?? []);
  if (documents.length === 0) {
    throw invalidRequest('"documents": expected at least one text', "documents");
  }
  const served = await call.server.models.obtain(fields.model);
  const { results, tokens } = await rankDocuments(call, served, fields.query, documents);
  const best = results.slice(0, fields.top_n ?? results.length);
  if (fields.texts !== undefined) {
    return json(best.map((one) => teiResult(one, fields.return_text, fields.raw_scores)));
  }
  return json({
    model: served.id,
    object: "list",
    usage: { prompt_tokens: tokens, total_tokens: tokens },
    results: best.map(({ index, score, document }) => ({
      index,
      relevance_score: score,
      ...(fields.return_documents && { document: { text: document } }),
    })),
  });
}

function documentsOf(given: string | readonly (string | { text: string })[]): string[] {
  const list = typeof given === "string" ? [given] : given;
  return list.map((one) => (typeof one === "string" ? one : one.text));
}

/** Scores are the model's own, as in llama.cpp, unless a client asks for normalized ones. */
function teiResult(
  { index, score, document }: RankedDocument,
  returnText: boolean = false,
  rawScores: boolean = true,
): object {
  const shown = rawScores ? score : 1 / (1 + Math.exp(-score));
  return { index, score: shown, ...(returnText && { text: document }) };
}

const routeAt = (path: string): Route => ({
  method: "POST",
  path,
  access: "use",
  handle: rerank,
});

export const rerankRoutes: RouteFamily = {
  name: "rerank",
  errors: openaiErrors,
  routes: ["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"].map(routeAt),
};

// The prefixes that model cards ask to put before a text that is embedded for a search: one text before queries, another before the
// passages that are searched. A table of facts, by the model's name. Nothing is added unless the caller asks for it
// (EmbedOptions.as).

import { UsageError } from "../base/errors.ts";

type TextRole = "query" | "passage";

interface Prefixes {
  /** In general.name or in the name of the file. */
  readonly name: RegExp;
  /** Instead of the name: the architecture is that of one family of models. */
  readonly architectures?: readonly string[];
  readonly query: string;
  readonly passage: string;
  /** The source: the model's page on Hugging Face. */
  readonly card: string;
}

const webSearch =
  "Instruct: Given a web search query, retrieve relevant passages that answer the query";
const bgeQuery = "Represent this sentence for searching relevant passages: ";

/** The first that matches counts. */
const table: readonly Prefixes[] = [
  {
    name: /\be5\b.*instruct/i,
    query: `${webSearch}\nQuery: `,
    passage: "",
    card: "intfloat/multilingual-e5-large-instruct",
  },
  { name: /\be5\b/i, query: "query: ", passage: "passage: ", card: "intfloat/e5-base-v2" },
  {
    name: /nomic[-_ ]embed[-_ ]text/i,
    architectures: ["nomic-bert", "nomic-bert-moe"],
    query: "search_query: ",
    passage: "search_document: ",
    card: "nomic-ai/nomic-embed-text-v1.5",
  },
  {
    name: /\bbge\b.*\bzh\b/i,
    query: "为这个句子生成表示以用于检索相关文章：",
    passage: "",
    card: "BAAI/bge-base-zh-v1.5",
  },
  { name: /\bbge\b.*\ben\b/i, query: bgeQuery, passage: "", card: "BAAI/bge-base-en-v1.5" },
  { name: /\bbge[-_ ]m3\b/i, query: "", passage: "", card: "BAAI/bge-m3" },
  {
    name: /embedding[-_ ]?gemma/i,
    architectures: ["gemma-embedding"],
    query: "task: search result | query: ",
    passage: "title: none | text: ",
    card: "google/embeddinggemma-300m",
  },
  {
    name: /qwen3[-_ ]embedding/i,
    query: `${webSearch}\nQuery:`, // no space after it
    passage: "",
    card: "Qwen/Qwen3-Embedding-0.6B",
  },
  {
    name: /jina[-_ ]embeddings[-_ ]v3/i,
    architectures: ["jina-bert-v3"],
    query: "Represent the query for retrieving evidence documents: ",
    passage: "Represent the document for retrieval: ",
    card: "jinaai/jina-embeddings-v3",
  },
  {
    name: /jina[-_ ]embeddings[-_ ]v2/i,
    architectures: ["jina-bert-v2"],
    query: "",
    passage: "",
    card: "jinaai/jina-embeddings-v2-base-en",
  },
  {
    name: /mxbai[-_ ]embed/i,
    query: bgeQuery,
    passage: "",
    card: "mixedbread-ai/mxbai-embed-large-v1",
  },
  {
    name: /arctic[-_ ]embed.{0,40}v2/i,
    query: "query: ",
    passage: "",
    card: "Snowflake/snowflake-arctic-embed-l-v2.0",
  },
  {
    name: /arctic[-_ ]embed/i,
    query: bgeQuery,
    passage: "",
    card: "Snowflake/snowflake-arctic-embed-m",
  },
  {
    name: /\ball[-_ ]minilm\b/i,
    query: "",
    passage: "",
    card: "sentence-transformers/all-MiniLM-L6-v2",
  },
];

/** The prefix that embed() puts before a text in this role, if it is asked to. A model that is not in the table is refused. */
export function embeddingPrefix(
  { name, architecture }: { name: string; architecture: string },
  role: TextRole,
): string {
  const found =
    table.find((entry) => entry.name.test(name)) ??
    table.find(({ architectures = [] }) => architectures.includes(architecture));
  if (found) return found[role];
  throw new UsageError(
    `embed(): as: got "${role}", but it is not known what ${name} (${architecture}) expects before a ${role}. Put the text that its model card asks for before yours, and leave "as" out`,
  );
}

// The configuration of an encoder: a decoder's, with the keys that only encoders have.

import type { RopeLayout } from "../graph/graph.ts";
import type { ModelConfig, ModelHeader } from "./arch.ts";
import { type ConfigOptions, LIMITS, readConfig, readerOf } from "./config.ts";
import { classifierLabels } from "./pooling.ts";

export interface EncoderConfig extends ModelConfig {
  causal: false;
  /** Rows of token_types.weight; 0: not in the file. */
  tokenTypes: number;
  /** Scores of the classifier, where the file has one. */
  labels: number;
}

export function readEncoderConfig(
  header: ModelHeader,
  defaultLayout: RopeLayout,
  options: ConfigOptions = {},
): EncoderConfig {
  const read = readerOf(header);
  if (read.boolean("attention.causal") === true) {
    read.fail("attention.causal", true, "false: this architecture attends in both directions");
  }
  const types = header.metadata.number("tokenizer.ggml.token_type_count") ?? 0;
  if (!Number.isInteger(types) || types < 0 || types > LIMITS.size) {
    read.fail("token_type_count", types, `an integer from 0 to ${LIMITS.size}`);
  }
  return {
    ...readConfig(header, defaultLayout, options),
    causal: false,
    tokenTypes: types,
    labels: Math.max(1, classifierLabels(header.metadata).length),
  };
}

// The names of a predictor's tensors (predictor.ts), as PowerInfer's files have them; fc2.bias is ours. A model may have them beside
// its weights, which computes the same without them.

export function isPredictorTensor(name: string): boolean {
  return /^blk\.\d+\.fc(1\.weight|2\.(weight|bias))$/.test(name);
}

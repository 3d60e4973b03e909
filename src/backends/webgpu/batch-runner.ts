// Runs batches of a model that is on the GPU: writes the batch area, submits the commands of a program, submitted ahead if possible, and waits for the results. With
// a tap, one node after the other. webgpu.ts is the backend around it.

import { AbortedError } from "../../base/errors.ts";
import type { Batch, RowCounts } from "../../graph/batch.ts";
import { sectionsOf, type Value } from "../../graph/graph.ts";
import type { RunOptions, Tap } from "../backend.ts";
import type { WordRange } from "./batch-area.ts";
import { copiesAll } from "./commands.ts";
import type { GpuDevice } from "./device.ts";
import type { Prepared } from "./prepared.ts";
import { encodePart, type Program, runsIn, type Step } from "./program.ts";
import { resultsOf } from "./results.ts";
import { pairCapacity } from "./wgsl/best-logits.ts";

/** Batches with more tokens are prompts, most likely. */
const MOST_USERS = 64;

/** Programs that the backend makes. */
interface Programs {
  /** The program that runs node by node. */
  nodeByNode(): Promise<Program>;
  /** A program over the present cache. */
  overCache(program: Program): Program;
}

export class BatchRunner {
  /** Whether the last batch was submitted ahead when it was asked for. */
  wasAhead = false;
  readonly #gpu: GpuDevice;
  readonly #ready: () => Prepared;
  readonly #programs: Programs;

  constructor(gpu: GpuDevice, ready: () => Prepared, programs: Programs) {
    this.#gpu = gpu;
    this.#ready = ready;
    this.#programs = programs;
  }

  /** Only writes the data of a batch. */
  write(batch: Batch): void {
    const prepared = this.#ready();
    this.#writeRanges(prepared.area.fill(batch), prepared);
  }

  async run(batch: Batch, options: RunOptions): Promise<void> {
    const { tap, stop, section = 0, input, output, phase = "prompt" } = options;
    const prepared = this.#ready();
    if (stop?.()) throw new AbortedError("the batch");
    const { layout, commands, out, lookahead } = prepared;
    const { graph } = layout.plan;
    // Without logits the last norm, which is fused with the output matrix, must be computed alone. Such a batch is not timed.
    const isWhole = batch.wantsLogits;
    const program = isWhole ? prepared.program : await this.#programs.nodeByNode();
    const times = isWhole && !tap ? prepared.times : undefined;
    const isTimed = times?.begin(batch, phase, section);
    // The host's work between a layer's router and its experts is no part of a pass.
    const stream = prepared.stream?.weights;
    const isRecorded = isTimed && layout.experts.length === 0 && !stream;
    const counts = batch.counts();
    // A profile and a tap show values: they read all logits.
    const isLast = section === sectionsOf(graph).length - 1;
    const isFree = isLast && isWhole && !tap && !isRecorded && program.best.length > 0;
    out.best.begin(isFree && batch.wholeCount < batch.outputCount);
    const isBest = out.best.areThere;
    this.wasAhead = lookahead.take(batch, () => isBest && prepared.area.hasBlocks(batch));
    const mayLookAhead = isBest && !times && program.looksAhead;
    if (mayLookAhead && this.#lookAhead(batch, prepared, counts)) {
      options.meanwhile?.();
      await out.takeAhead(batch, lookahead, program.exchange !== undefined);
      if (stop?.()) throw new AbortedError("the batch");
      return;
    }
    if (section === 0) this.#writeRanges(prepared.area.fill(batch), prepared);
    if (input) this.#writeTaken(sectionsOf(graph)[section]!.takes, counts, input);
    const { queue } = this.#gpu.device;
    if (tap) {
      await this.#runTapped(batch, prepared, tap, options);
      queue.submit([commands.results(counts, resultsOf(graph, section))]);
    } else {
      if (isRecorded) queue.submit([commands.recorded(times!, counts, section)]);
      else {
        for (const step of program.steps[section]!) {
          await this.#bring(step);
          if (stream && stop?.()) throw new AbortedError("the batch");
          await this.#runStep(program, step, counts);
          if (step.unit !== undefined) stream!.done(step.unit);
        }
      }
      if (isBest && batch.wholeCount > 0) {
        const { logits } = graph.outputs;
        queue.submit([
          commands.wholeRows(
            counts,
            batch.wholeRows,
            logits!,
            pairCapacity(prepared.area.adjustedCount, counts.logits),
          ),
        ]);
      }
      options.meanwhile?.();
    }
    // A tap's program, one without logits, and a recorded one have no layer kernels.
    const mayFail = !tap && isWhole && !isRecorded && program.exchange !== undefined;
    if (isBest)
      await out.bestAndWhole(
        batch,
        pairCapacity(prepared.area.adjustedCount, counts.logits),
        mayFail,
      );
    else await out.section(section, counts, output, mayFail);
    await times?.end(section);
    if (stop?.()) throw new AbortedError("the batch");
  }

  /** Waits until the matrices that a step reads are on their way. */
  async #bring({ unit }: Step): Promise<void> {
    if (unit !== undefined) await this.#ready().stream!.weights.ready(unit);
  }

  /** Submits a step; before one of experts, it waits for their routes. */
  async #runStep(program: Program, step: Step, counts: RowCounts): Promise<void> {
    const prepared = this.#ready();
    const { experts, routes, out, layout } = prepared;
    const { queue } = this.#gpu.device;
    const { logits } = layout.plan.graph.outputs;
    const isBest = out.best.areThere && logits !== undefined && step.results.includes(logits);
    const copies = isBest
      ? ({
          what: "best",
          pairs: pairCapacity(prepared.area.adjustedCount, counts.logits),
          isOne: prepared.area.isOne,
        } as const)
      : copiesAll;
    if (step.experts) {
      const { rows, cols } = step.experts.routes;
      await out.floats(counts[rows]! * cols, (copied) => routes.set(copied));
    }
    // The cache may have grown since the batch began: these are asked for after all waiting.
    const { commands } = prepared;
    const current = this.#programs.overCache(program);
    const submit = () => {
      for (const piece of commands.take(current, counts, step, copies)) queue.submit([piece]);
    };
    if (step.experts) {
      experts.compute(step.experts, routes, counts[step.experts.routes.rows]!, submit);
    } else submit();
    if (step.unit !== undefined) return;
    // A batch of as many users will probably follow: its commands are encoded while this one is computed.
    if (counts.tokens <= MOST_USERS) {
      commands.prepare(current, counts, step, copies);
    }
  }

  /** Submits a batch, unless it is submitted ahead, and those behind it that may be. False: none may, and nothing was done. */
  #lookAhead(batch: Batch, prepared: Prepared, counts: RowCounts): boolean {
    const { lookahead, area, program, commands, buffers } = prepared;
    const room = lookahead.capacityFor(batch);
    if (!this.wasAhead && room === 0) return false;
    const { queue } = this.#gpu.device;
    const step = program.steps[0]![0]!;
    const submit = (index: number): void => {
      const { isOne } = area;
      const copies = { what: buffers.lookahead[index]!, pairs: lookahead.lastPairs, isOne };
      for (const piece of commands.take(program, counts, step, copies)) queue.submit([piece]);
    };
    if (!this.wasAhead) {
      this.#writeRanges(area.fill(batch, true), prepared);
      submit(lookahead.begin(batch, pairCapacity(area.adjustedCount, counts.logits)));
    }
    while (lookahead.ahead < room) {
      const ahead = lookahead.ahead + 1;
      this.#writeRanges(area.fillAhead(batch, ahead), prepared);
      submit(lookahead.add(pairCapacity(area.adjustedCount, counts.logits)));
    }
    // Encoded while the GPU computes.
    const { isOne } = area;
    const copies = { what: buffers.lookahead[lookahead.next]!, pairs: lookahead.lastPairs, isOne };
    commands.prepare(program, counts, step, copies);
    return true;
  }

  #writeRanges(ranges: readonly WordRange[], { area, buffers }: Prepared): void {
    const { queue } = this.#gpu.device;
    for (const [from, to] of ranges) {
      queue.writeBuffer(buffers.batch, from * 4, area.words, from, to - from);
    }
  }

  /** Writes the values that another part of the graph has computed. */
  #writeTaken(values: readonly Value[], counts: RowCounts, input: Float32Array): void {
    let at = 0;
    for (const value of values) {
      const length = counts[value.rows]! * value.cols;
      this.#write(value, input.subarray(at, at + length));
      at += length;
    }
  }

  /** Runs one node after the other, and reads each value back right after it. */
  async #runTapped(
    batch: Batch,
    prepared: Prepared,
    tap: Tap,
    { replace, section = 0 }: RunOptions,
  ): Promise<void> {
    const counts = batch.counts();
    const program = await this.#programs.nodeByNode();
    const { ends, steps } = program;
    for (let i = ends[section - 1] ?? 0; i < ends[section]!; i++) {
      const step = steps[section]!.find(({ from, experts }) => experts && from === i);
      if (step) await this.#runExperts(program, step, counts);
      const layer = steps[section]!.find(({ from, unit }) => unit !== undefined && from === i);
      if (layer) await this.#bring(layer);
      const last = steps[section]!.find(({ to, unit }) => unit !== undefined && to === i + 1);
      const { nodes, dispatches } = this.#programs.overCache(program).parts[i]!;
      const isDone = steps[section]!.some((s) => s.experts && s.from <= i && i < s.to);
      const node = nodes[0]!;
      const commands = this.#gpu.device.createCommandEncoder();
      const pass = commands.beginComputePass();
      if (!isDone) encodePart(pass, dispatches, counts);
      pass.end();
      if (!node.out) {
        this.#gpu.device.queue.submit([commands.finish()]);
        if (last) prepared.stream!.weights.done(last.unit!);
        continue;
      }
      const data = new Float32Array(counts[node.out.rows]! * node.out.cols);
      await prepared.out.value(commands, node.out, 0, data.length, data);
      if (last) prepared.stream!.weights.done(last.unit!);
      tap(
        node.out,
        data,
        dispatches.some(({ kernel }) => kernel.inHalves && runsIn(kernel, counts)),
      );
      const instead = replace?.(node.out);
      if (instead) this.#write(node.out, instead);
    }
  }

  /** All passes over the experts of a range; the values that they read and write stay until their end. */
  async #runExperts(program: Program, step: Step, counts: RowCounts): Promise<void> {
    const { commands } = this.#ready();
    this.#gpu.device.queue.submit([commands.results(counts, [step.experts!.routes])]);
    await this.#runStep(program, step, counts);
  }

  /** Writes whole rows of a value from the host. */
  #write(value: Value, rows: Float32Array): void {
    const { layout, buffers } = this.#ready();
    const slot = buffers.slots[layout.slotOf[value.id]!]!;
    this.#gpu.device.queue.writeBuffer(slot, 0, rows as Float32Array<ArrayBuffer>);
  }
}

// The lifecycle of a served model as data: its states, what can happen to it, and for each pair the next state and what is done then.
// machine.ts runs this table; test/server/lifecycle.test.ts explores it. A pair that is not in the table cannot happen: the machine
// reports it as a bug, and the exploration shows that none does.

/** Each state, and what the memory that the model takes is doing then. */
export const stateMemory = {
  /** Not in memory; a request loads it. */
  unloaded: "none",
  /** The same, and the last load failed: the reason is shown until the next one. */
  failed: "none",
  /** Its load waits for its turn, or for room. */
  queued: "none",
  loading: "coming",
  /** Its load was stopped, and has not ended yet: what it still opens is closed. */
  stopping: "coming",
  /** In memory, and no request uses it: it is unloaded when its time is over. */
  idle: "held",
  busy: "held",
  /** It leaves as soon as the requests that use it are answered, to make room; others wait for a load. */
  draining: "held",
  /** The same, but it is closed then: it was forgotten, or is to be opened with other options. */
  retiring: "leaving",
  unloading: "leaving",
  /** unload() runs, and somebody has called the model meanwhile, which loads it again. */
  reviving: "leaving",
  /** dispose() runs. */
  closing: "leaving",
} as const;

export type State = keyof typeof stateMemory;

export type Event =
  /** A request wants it. */
  | "ask"
  /** A request that holds it, or held it, wants it: it must not wait for room that it takes itself. */
  | "askAgain"
  /** A request wants it, and it is to be opened with other options first. */
  | "askAnew"
  /** It is to be opened with options that a person has chosen, and is used as it is until then. */
  | "choose"
  /** It is unloaded, and a load of it waits. */
  | "wanted"
  /** There is room, and its load is the first of the queue. */
  | "turn"
  /** A model was opened or added; it was loaded again after it was unloaded. */
  | "opened"
  | "loaded"
  /** Its load failed; for want of memory, and another model can leave; or was stopped. */
  | "broke"
  | "short"
  | "stop"
  /** The last request that used it was answered. */
  | "released"
  /** It must leave to make room, and is in use. */
  | "drain"
  /** The room is not needed any more. */
  | "spare"
  /** It is idle, and its time is over or its room is needed. */
  | "leave"
  /** unload() has ended: it has left, or still computes. */
  | "left"
  | "refused"
  /** It is called by somebody who does not hold it, which loads it. */
  | "touched"
  /** It is to be closed. */
  | "forget"
  | "closed"
  /** Its failure has been seen. */
  | "clear";

/** What is done: `use` and `wait` with the request that asks, `admit` with all that wait for its loads. */
export type Action =
  | "use"
  | "wait"
  | "admit"
  | "open"
  | "unload"
  | "close"
  | "discard"
  | "stay"
  | "linger"
  | "rest";

export type Step = readonly [to: State, ...actions: Action[]];

type Row = Partial<Record<Event, Step>>;

/** Whoever asks waits for a load. */
function waiting(state: State): Row {
  const wait: Step = [state, "wait"];
  return { ask: wait, askAgain: wait, askAnew: wait, choose: wait };
}

/** A model that is opened meanwhile takes its place; the old one is closed when it is used no more. */
const replaced: Row = { opened: ["idle", "stay", "admit"] };

const out: Row = {
  ...waiting("queued"),
  ...replaced,
  wanted: ["queued"],
  touched: ["idle", "linger"],
  forget: ["unloaded", "discard"],
};

export const lifecycle: Readonly<Record<State, Row>> = {
  unloaded: out,
  failed: { ...out, clear: ["unloaded"] },
  queued: {
    ...waiting("queued"),
    ...replaced,
    turn: ["loading", "open"],
    stop: ["unloaded"],
    broke: ["failed"],
    touched: ["idle", "linger", "admit"],
    forget: ["queued", "discard"],
  },
  loading: {
    ...waiting("loading"),
    ...replaced,
    loaded: ["idle", "stay", "admit"],
    short: ["queued"],
    broke: ["failed"],
    stop: ["stopping"],
    touched: ["loading"],
  },
  stopping: {
    ...waiting("stopping"),
    loaded: ["unloading", "unload"],
    broke: ["unloaded"],
    touched: ["stopping"],
  },
  idle: {
    ...replaced,
    ask: ["busy", "use"],
    askAgain: ["busy", "use"],
    askAnew: ["closing", "wait", "close"],
    choose: ["idle", "wait"],
    turn: ["idle", "open"],
    leave: ["unloading", "unload"],
    touched: ["idle", "linger"],
    forget: ["closing", "close"],
  },
  busy: {
    ...replaced,
    ask: ["busy", "use"],
    askAgain: ["busy", "use"],
    askAnew: ["retiring", "wait"],
    choose: ["busy", "wait"],
    turn: ["busy", "open"],
    released: ["idle", "stay"],
    drain: ["draining"],
    touched: ["busy"],
    forget: ["retiring"],
  },
  draining: {
    ...waiting("draining"),
    askAgain: ["draining", "use"],
    askAnew: ["retiring", "wait"],
    released: ["unloading", "unload"],
    spare: ["busy", "admit"],
    touched: ["draining"],
    forget: ["retiring"],
  },
  retiring: {
    ...waiting("retiring"),
    ...replaced,
    askAgain: ["retiring", "use"],
    released: ["closing", "close"],
    touched: ["retiring"],
    forget: ["retiring"],
  },
  unloading: {
    ...waiting("unloading"),
    ...replaced,
    left: ["unloaded"],
    refused: ["idle", "rest", "admit"],
    touched: ["reviving"],
  },
  reviving: {
    ...waiting("reviving"),
    ...replaced,
    left: ["idle", "linger", "admit"],
    refused: ["idle", "linger", "admit"],
    touched: ["reviving"],
  },
  closing: {
    ask: ["closing", "wait"],
    askAgain: ["closing", "wait"],
    choose: ["closing", "wait"],
    ...replaced,
    closed: ["unloaded"],
  },
};

// Dense matrices of floats, row after row, for fitting predictors (fit.ts): plain loops, four rows at a time.

export interface Matrix {
  readonly rows: number;
  readonly cols: number;
  /** [rows, cols] */
  readonly data: Float32Array;
}

export function zeros(rows: number, cols: number): Matrix {
  return { rows, cols, data: new Float32Array(rows * cols) };
}

/** Some rows, which share the matrix's memory. */
export function rowsOf({ cols, data }: Matrix, from: number, to: number): Matrix {
  return { rows: to - from, cols, data: data.subarray(from * cols, to * cols) };
}

/** a b^T: [a.rows, b.rows]. `pause` is awaited now and then. */
export async function timesTransposed(
  a: Matrix,
  b: Matrix,
  pause: () => Promise<void>,
): Promise<Matrix> {
  const out = zeros(a.rows, b.rows);
  const { cols } = a;
  for (let i = 0; i < a.rows; i++) {
    if (i % 64 === 0) await pause();
    const x = a.data.subarray(i * cols, (i + 1) * cols);
    for (let j = 0; j < b.rows; j += 4) {
      dotFour(x, b, j, out.data, i * b.rows + j);
    }
  }
  return out;
}

/** Products of x with up to four rows of b from row j on. */
function dotFour(x: Float32Array, b: Matrix, j: number, out: Float32Array, at: number): void {
  const { cols, data } = b;
  const last = b.rows - 1;
  const [r0, r1, r2, r3] = [j, j + 1, j + 2, j + 3].map((row) => Math.min(row, last) * cols);
  let [s0, s1, s2, s3] = [0, 0, 0, 0];
  for (let k = 0; k < cols; k++) {
    const value = x[k]!;
    s0 += value * data[r0! + k]!;
    s1 += value * data[r1! + k]!;
    s2 += value * data[r2! + k]!;
    s3 += value * data[r3! + k]!;
  }
  out[at] = s0;
  if (j + 1 <= last) out[at + 1] = s1;
  if (j + 2 <= last) out[at + 2] = s2;
  if (j + 3 <= last) out[at + 3] = s3;
}

/** a^T b: [a.cols, b.cols]. */
export async function transposedTimes(
  a: Matrix,
  b: Matrix,
  pause: () => Promise<void>,
): Promise<Matrix> {
  const out = zeros(a.cols, b.cols);
  const whole = a.rows - (a.rows % 4);
  for (let i = 0; i < a.cols; i++) {
    if (i % 16 === 0) await pause();
    const to = out.data.subarray(i * b.cols, (i + 1) * b.cols);
    for (let k = 0; k < whole; k += 4) addFour(to, a, i, b, k);
    for (let k = whole; k < a.rows; k++) {
      const factor = a.data[k * a.cols + i]!;
      for (let j = 0; j < b.cols; j++) to[j]! += factor * b.data[k * b.cols + j]!;
    }
  }
  return out;
}

/** Adds four rows of b from row k on, each times its value in column i of a. */
function addFour(to: Float32Array, a: Matrix, i: number, b: Matrix, k: number): void {
  const { cols, data } = b;
  const [a0, a1, a2, a3] = [0, 1, 2, 3].map((row) => a.data[(k + row) * a.cols + i]!);
  const r0 = k * cols;
  const [r1, r2, r3] = [r0 + cols, r0 + 2 * cols, r0 + 3 * cols];
  for (let j = 0; j < cols; j++) {
    to[j]! += a0! * data[r0 + j]! + a1! * data[r1 + j]! + a2! * data[r2 + j]! + a3! * data[r3 + j]!;
  }
}

/** Makes the rows orthogonal and of length 1, in place; rows that depend on earlier ones become zero. */
export function orthonormalise({ rows, cols, data }: Matrix): void {
  for (let i = 0; i < rows; i++) {
    const own = data.subarray(i * cols, (i + 1) * cols);
    const before = lengthOf(own);
    // Twice: the first pass leaves rounding errors.
    for (let pass = 0; pass < 2; pass++) {
      for (let j = 0; j < i; j++) {
        const other = data.subarray(j * cols, (j + 1) * cols);
        let product = 0;
        for (let k = 0; k < cols; k++) product += own[k]! * other[k]!;
        for (let k = 0; k < cols; k++) own[k]! -= product * other[k]!;
      }
    }
    const length = lengthOf(own);
    const factor = length > 1e-5 * before ? 1 / length : 0;
    for (let k = 0; k < cols; k++) own[k]! *= factor;
  }
}

function lengthOf(values: Float32Array): number {
  let sum = 0;
  for (const value of values) sum += value * value;
  return Math.sqrt(sum);
}

/** Solves m x = b for a symmetric positive m: [n, b.cols]. Both are overwritten. */
export function solveSymmetric(m: Matrix, b: Matrix): Matrix {
  const n = m.rows;
  const l = Float64Array.from(m.data);
  for (let j = 0; j < n; j++) {
    for (let i = j; i < n; i++) {
      let sum = l[i * n + j]!;
      for (let k = 0; k < j; k++) sum -= l[i * n + k]! * l[j * n + k]!;
      l[i * n + j] = i === j ? Math.sqrt(Math.max(sum, 1e-30)) : sum / l[j * n + j]!;
    }
  }
  const x = b.data;
  const take = (to: number, from: number, factor: number) => {
    for (let c = 0; c < b.cols; c++) x[to * b.cols + c]! -= factor * x[from * b.cols + c]!;
  };
  const divide = (row: number) => {
    const factor = 1 / l[row * n + row]!;
    for (let c = 0; c < b.cols; c++) x[row * b.cols + c]! *= factor;
  };
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) take(i, k, l[i * n + k]!);
    divide(i);
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let k = i + 1; k < n; k++) take(i, k, l[k * n + i]!);
    divide(i);
  }
  return b;
}

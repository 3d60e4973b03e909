// Checks on other processes of this machine.

/** Whether a process with this id exists now, of any user. */
export function isRunning(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"; // it runs as another user
  }
}

const mostMsAfterFailure = 3000;

/** Sets the exit code. A failed process ends even if something is still open; its output is flushed first. */
export function endWith(code: number): void {
  process.exitCode = code;
  if (code === 0) return;
  const end = (): void => {
    if (process.stdout.writableLength + process.stderr.writableLength === 0) process.exit(code);
  };
  setInterval(end, mostMsAfterFailure).unref();
}

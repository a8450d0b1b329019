/** Owns time: microseconds on CLOCK_MONOTONIC, which all processes of one machine share. */
export const nowUs = (): number => Number(process.hrtime.bigint() / 1000n)

/** A module that a thread refuses. */
export const handler = () => undefined

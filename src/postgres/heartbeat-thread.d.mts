/** What the parent sees of the heartbeat's thread: where its program lies. */
export declare const heartbeatFile: string

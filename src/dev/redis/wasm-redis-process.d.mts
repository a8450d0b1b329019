/** What the parent sees of the server's program: where it lies and how it is told to serve. */
export declare const wasmRedisFile: string
export declare const wasmRedisMark: string
export declare const listeningLine: string

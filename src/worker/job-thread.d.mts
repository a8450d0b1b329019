/** What the parent sees of a thread that runs jobs: where its program lies. */
export declare const jobThreadFile: string

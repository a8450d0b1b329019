/** What the parent sees of the guardian's program: where it lies and how it is told to guard. */
export declare const guardianFile: string
export declare const guardianMark: string

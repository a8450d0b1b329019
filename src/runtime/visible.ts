/**
 * Owns what a terminal would act upon in a text of others, and how it is shown instead: control characters, line breaks that are not
 * ours, and characters that turn the direction of what follows.
 */
const STEERING = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu
/** Of those, what JSON leaves as it is inside of its texts. */
const LEFT_BY_JSON = /[\x7f-\x9f\p{Zl}\p{Zp}\p{Bidi_Control}]/gu

const hex = (char: string, digits: number) => char.charCodeAt(0).toString(16).padStart(digits, '0')

/** On one line: `\x1b` stands for what would begin a command to the terminal. */
export const visible = (text: string): string =>
  text.replace(STEERING, char => (char < '\u0100' ? `\\x${hex(char, 2)}` : `\\u${hex(char, 4)}`))

/** JSON that says the same. */
export const visibleJson = (json: string): string => json.replace(LEFT_BY_JSON, char => `\\u${hex(char, 4)}`)

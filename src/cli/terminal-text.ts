/** Owns texts of others on a terminal: nothing in them can steer it, and they take as many columns as was counted. */

/** What a terminal acts upon, or draws as it likes: controls, lone surrogates, private and unassigned code points, flags. */
const UNSAFE = /[\p{Cc}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Regional_Indicator}]/gu
/** What joins, colours or turns around its neighbours and takes no column itself. */
const UNSEEN = /[\p{Cf}\p{Default_Ignorable_Code_Point}\p{Emoji_Modifier}]/gu
const MARK = /[\p{Mn}\p{Me}]/u
const WIDE =
  /[\p{Emoji_Presentation}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Yi}\u{3000}-\u{303e}\u{30fc}\u{ff01}-\u{ff60}\u{ffe0}-\u{ffe6}]/u
const HALF_WIDE = /[\u{ff61}-\u{ffdc}]/u
const PLAIN = /^[ -~]*$/

/** On one line, and harmless. */
export function toPlain(text: string): string {
  if (PLAIN.test(text)) return text
  return text.normalize('NFC').replaceAll(UNSAFE, '·').replaceAll(UNSEEN, '')
}

/** Columns that a plain text takes. */
export function widthOf(text: string): number {
  if (PLAIN.test(text)) return text.length
  let width = 0
  for (const char of text) width += widthOfChar(char)
  return width
}

function widthOfChar(char: string): number {
  if (MARK.test(char)) return 0
  return WIDE.test(char) && !HALF_WIDE.test(char) ? 2 : 1
}

/** At most so many columns; what does not fit ends with `…`. */
export function truncate(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  if (width <= 0) return ''
  let kept = ''
  let used = 1
  for (const char of text) {
    used += widthOfChar(char)
    if (used > width) break
    kept += char
  }
  return `${kept}…`
}

/** Exactly so many columns. */
export function padded(text: string, width: number, align: 'left' | 'right' = 'left'): string {
  const shown = truncate(text, width)
  const gap = ' '.repeat(Math.max(0, width - widthOf(shown)))
  return align === 'left' ? shown + gap : gap + shown
}

/** Owns hiding credentials in a text that is logged, stored or shown. */

// Bounded, so that no text takes long: what stands before the last @ of a URL, however wrong the URL is.
const USER = /:\/\/[^\s/@:]{0,200}(?::\S{0,300})?@/g
const PARAMETER = /([?&][^=&\s]{0,50}(?:pass|secret|token)[^=&\s]{0,50}=)[^&\s]+/gi

export const withoutCredentials = (text: string): string =>
  text.includes('://') ? text.replace(USER, '://***@').replace(PARAMETER, '$1***') : text

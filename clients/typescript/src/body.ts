/** An answer's body as it arrives, never larger than its limit: also not once it is decompressed. */

const MOST_BYTES = 1 << 20;

/** Return an answer's text. Throws past the limit, where the rest is not read, and whatever the connection does. */
export async function textOf(response: Response): Promise<string> {
  if (!response.body) return response.text(); // there is none
  const chunks = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let read = 0; ; ) {
    const { done, value } = await chunks.read();
    if (done) return text + decoder.decode();
    read += value.length;
    if (read > MOST_BYTES) {
      chunks.cancel().catch(() => undefined); // so long an answer may end in an error, too
      throw new Error(`the answer has more than ${MOST_BYTES} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

// JSON that people and models write: parsed, and checked with a schema.
import { Validator } from "@cfworker/json-schema";

// {value} or {problem}, in the browser's words.
export function parsed(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { problem: error.message };
  }
}

// What of the value the schema forbids: [] when it is valid.
export function violations(value, schema) {
  try {
    const { valid, errors } = new Validator(schema, "2020-12", false).validate(value);
    if (valid) return [];
    // An error of an inner part comes with one for each part around it; the inner ones say more.
    const around = ["properties", "items", "$ref"];
    const inner = errors.filter(({ keyword }) => !around.includes(keyword));
    return (inner.length > 0 ? inner : errors).map(
      ({ instanceLocation, error }) => `${instanceLocation.replace(/^#/, "") || "/"}: ${error}`);
  } catch (error) {
    return [`The schema cannot be checked here: ${error.message}`];
  }
}

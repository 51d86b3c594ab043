// What the playground begins with, and what can be chosen there.
export const kSchemas = {
  "CSV row": {
    question: "Turn this CSV row into a JSON object:\nitem,name,age\nwolf,Adam,94",
    schema: {
      type: "object",
      properties: {
        item: { type: "string", maxLength: 20 },
        name: { type: "string", maxLength: 20 },
        age: { type: "integer", minimum: 0, maximum: 150 },
      },
      required: ["item", "name", "age"],
      additionalProperties: false,
    },
  },
  Person: {
    question: "Tell me about a person called Ella who is 30.",
    schema: {
      type: "object",
      properties: {
        name: { type: "string", maxLength: 30 },
        age: { type: "integer", minimum: 0, maximum: 150 },
        tags: { type: "array", maxItems: 3, items: { enum: ["friend", "family", "work"] } },
      },
      required: ["name", "age", "tags"],
      additionalProperties: false,
    },
  },
  "To-do list": {
    question: "Make a short to-do list for moving to a new flat.",
    schema: {
      type: "object",
      properties: {
        tasks: {
          type: "array",
          minItems: 1,
          maxItems: 4,
          items: {
            type: "object",
            properties: {
              title: { type: "string", maxLength: 40 },
              priority: { enum: ["low", "normal", "high"] },
              done: { type: "boolean" },
            },
            required: ["title", "priority", "done"],
            additionalProperties: false,
          },
        },
      },
      required: ["tasks"],
      additionalProperties: false,
    },
  },
  Sentiment: {
    question: "“The room was small, but the view made up for it.” How does the writer feel?",
    schema: {
      type: "object",
      properties: {
        sentiment: { enum: ["positive", "neutral", "negative"] },
        confidence: { type: "number", minimum: 0, maximum: 1 },
      },
      required: ["sentiment", "confidence"],
      additionalProperties: false,
    },
  },
};

export const kToolQuestion = "What is 706 + 778?";

const parameters = (properties) =>
  ({ type: "object", properties, required: Object.keys(properties) });

export const kTools = [
  {
    name: "calculate",
    description: "Evaluate an expression.",
    parameters: parameters({ expression: { type: "string" } }),
  },
  {
    name: "add_event",
    description: "Add an event to the calendar.",
    parameters: parameters({
      title: { type: "string" },
      day: { type: "string" },
      time: { type: "string" },
    }),
  },
];

export const pretty = (value) => JSON.stringify(value, null, 2);

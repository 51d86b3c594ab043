// First prompts of the kinds that models/braid-tiny was trained on; each is answered right by it.
export const kStarters = [
  {
    title: "Count the stamps",
    prompt:
      "Lucy starts the day with 12 stamps. She loses 11 of them. Lena gives Lucy 15 more stamps. " +
      "How many stamps does Lucy have now?",
  },
  {
    title: "Tell a story",
    prompt: "Tell me a story about a fox named Finn in the meadow.",
  },
  {
    title: "Look it up in notes",
    prompt:
      "Read these notes.\nThe code of the old wagon is 3848. The owner of the quiet anchor is " +
      "Omar. The weather in Madrid was mild that day. The place of the strange basket is the " +
      "attic.\n\n" +
      "Who is the owner of the quiet anchor?",
  },
  {
    title: "CSV to JSON",
    prompt: "Turn this CSV row into a JSON object:\nitem,name,age\nwolf,Adam,94",
  },
];

"""Which lines of the files of models/eval the tasks beside take."""


def is_question_of_one_turn(item):
    return item["check"] == "exact" and not item["thinking"] and len(item["messages"]) == 1


def questions_of_one_turn(items):
    return items.filter(is_question_of_one_turn)


def texts(items):
    return items.filter(lambda item: item["check"] == "perplexity")

"""Which of two settings is faster."""

TEMPLATES = {
    "ab-faster": "{subject} is {ratio:interval 2} times as fast as {other}.",
    "ab-tie": "No difference is shown: B is {low} to {high} times as fast as A (95 % confidence interval).",
    "ab-wide": "No difference is shown: the pairs differ too much.",
    "ab-one-pair": "B is {ratio:interval 2} times as fast as A in one pair; --repeats=5 gives a confidence interval.",
    "ab-other-work": "A and B are not compared, because they do different work: {options:list}.",
    "ab-unlike": "A and B are not compared, because their runs differ in more: {facts:list}.",
    "ab-no-answer": "A and B are not compared: {reasons:list}.",
}

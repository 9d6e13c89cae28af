"""How much oftener some questions are asked than others. It stands alone: an event's load sends it to AWS Lambda."""

ZIPF = 0.8

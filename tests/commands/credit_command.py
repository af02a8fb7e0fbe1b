"""What `crbc credit` left in the folder."""

import json
import os
import pathlib


def left():
  """Names of what is in the folder, beside the logs."""
  return {name for name in os.listdir() if not name.startswith("log")}


def lines(path="out.jsonl"):
  return [json.loads(x) for x in pathlib.Path(path).read_text().splitlines()]

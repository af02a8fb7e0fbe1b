"""Small logs of our own in every format, valid, as text."""

import io
import json

import numpy as np


def game24() -> str:
  """Puzzle 7 (1 2 3 4): two clean rollouts; four that are not."""
  texts = {
    "win": "Steps:\n1 + 3 = 4 (left: 2 4 4)\n2 + 4 = 6 (left: 4 6)\n"
    "4 * 6 = 24 (left: 24)\nAnswer: (2 + (1 + 3)) * 4 = 24",
    "lose": "1 + 2 = 3 (left: 3 3 4)\n3 + 3 = 6 (left: 4 6)\n"
    "6 - 4 = 2 (left: 2)",
    "sum": "1 + 3 = 5 (left: 2 4 5)\n5 - 4 = 1 (left: 1 2)\n"
    "1 + 2 = 3 (left: 3)",
    "short": "1 + 3 = 4 (left: 2 4 4)\n2 + 4 = 6 (left: 4 6)",
    "follows": "1 + 3 = 4 (left: 2 4 4)\n3 * 4 = 12 (left: 2 12)\n"
    "2 * 12 = 24 (left: 24)",
    "words": "1 + 3 = 4 (left: 2 4 4)\nthen 2 + 4 (left: 4 6)\n"
    "4 * 6 = 24 (left: 24)",
  }
  infos = [{"r": int(name == "win")} for name in texts]
  return json.dumps([{"idx": 7, "ys": list(texts.values()), "infos": infos}])


def _tool(name, arguments, result):
  call = {"function": {"name": name, "arguments": arguments}, "id": "c"}
  return [
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "name": name, "content": result},
  ]


def tau_records() -> list:
  """Task 3: a success, a failure, one cut off, one handed to a human."""
  start = [
    {"role": "system", "content": "Policy."},
    {"role": "user", "content": "Cancel my flight."},
  ]
  look = _tool("get_user", '{"id": "x"}', "no flights")
  stop = [
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "###STOP###"},
  ]
  human = _tool("transfer_to_human_agents", "{}", "Transfer successful")
  chats = [look + stop, stop, look, look + human]
  return [
    {
      "task_id": 3,
      "trial": i,
      "reward": float(i == 0),
      "info": {},
      "traj": start + chat,
    }
    for i, chat in enumerate(chats)
  ]


def tau_bench() -> str:
  return json.dumps(tau_records())


def intercode_records() -> dict:
  """Four tasks: solved at once, out of turns, submitted in vain, blocked."""

  def record(task, actions, rewards, observations=None, valid=None):
    return {
      "environment": "ic_bash",
      "dataset": "./data/nl2bash/fs_4.json",
      "task_id": task,
      "query": f"task {task}",
      "turn_history": {
        "actions": actions,
        "observations": observations or ["out"] * len(actions),
        "rewards": rewards,
        "valid_action": valid or [True] * len(actions),
      },
    }

  return {
    "0": record(0, ["ls"], [1.0]),
    "1": record(1, ["ls", "ls -a"], [0.5, 0.67]),
    "2": record(2, ["ls", "submit"], [0, 0.9]),
    "3": record(3, ["ls", "blocked"], [0.5, 0], ["out"], [False]),
  }


def intercode() -> str:
  return json.dumps(intercode_records())


def swe_agent() -> str:
  steps = [
    {"action": "ls\n", "observation": "a.py", "state": "{}"},
    {"action": "", "observation": "No command found", "state": "{}"},
    {"action": "submit", "observation": "diff", "state": "{}"},
  ]
  statement = {"id": "org__repo-1", "text": "It breaks."}
  return json.dumps(
    {
      "trajectory": steps,
      "history": [],
      "info": {"exit_status": "submitted"},
      "replay_config": json.dumps({"problem_statement": statement}),
    }
  )


def mini_messages() -> list:
  fence = "```mswea_bash_command\n{}\n```"
  finish = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
  return [
    {"role": "system", "content": "You can interact with a computer."},
    {"role": "user", "content": "It breaks."},
    {"role": "assistant", "content": "Look.\n" + fence.format("ls")},
    {"role": "user", "content": "<returncode>0</returncode>"},
    {"role": "assistant", "content": "No command."},
    {"role": "user", "content": "Format error"},
    {"role": "assistant", "content": fence.format(finish)},
    {"role": "user", "content": "diff"},
  ]


def mini_swe_agent() -> str:
  return json.dumps(mini_messages())


def trace(name="t0", *, score: float | None = 1.0, **changes) -> dict:
  """A verifiers trace with a tool call and an answer."""
  messages = [
    ({"role": "system", "content": "Policy."}, 0),
    ({"role": "user", "content": "What is 2 + 2?"}, 0),
    (
      {
        "role": "assistant",
        "tool_calls": [{"id": "c", "name": "add", "arguments": '{"a": 2}'}],
      },
      2,
    ),
    ({"role": "tool", "tool_call_id": "c", "content": "4"}, 0),
    ({"role": "assistant", "content": "4"}, 1),
  ]
  nodes = [
    {
      "parent": i - 1 if i else None,
      "message": message,
      "sampled": sampled > 0,
      "token_ids": list(range(3)),
      "mask": [False] * (3 - sampled) + [True] * sampled,
    }
    for i, (message, sampled) in enumerate(messages)
  ]
  reward = None if score is None else {"score": score, "weight": 1.0}
  return {
    "id": name,
    "task": {"type": "Sum", "data": {}, "key": "sum-1", "hash": "abc"},
    "nodes": nodes,
    "rewards": {"correct": reward},
    "metrics": {},
    "errors": [],
    "stop_condition": "agent_completed",
  } | changes


def verifiers() -> str:
  episode = {"traces": [trace("t1", score=0.0)]}
  return "\n".join(map(json.dumps, [trace(), episode]))


def roll_rows() -> list:
  """Two rollouts of a group, the rows of one out of order."""
  return [
    {
      "traj_id": name,
      "traj_group_id": "g0",
      "step": step,
      "state_hash": state,
      "step_scores": 0.0,
      "episode_scores": float(name == "a"),
      "action": action,
    }
    for name, step, state, action in (
      ("a", 1, "library", "read"),
      ("a", 0, "hall", "north"),
      ("b", 0, "hall", "south"),
    )
  ]


def roll() -> str:
  return "\n".join(map(json.dumps, roll_rows()))


def verl_columns() -> dict:
  """Two rollouts of a group; the second row is a copy of the first."""
  return {
    "uid": np.array(["u", "u", "u", "u"]),
    "traj_uid": np.array(["a", "a", "b", "a"]),
    "step_idx": np.array([0, 0, 0, 1]),
    "anchor_obs": np.array(["hall", "hall", "hall", "library"]),
    "text_actions": np.array(["north", "north", "south", "read"]),
    "rewards": np.array([0.0, 0.0, 0.0, 10.0]),
    "success": np.array([True, True, False, True]),
  }


def npz(columns) -> bytes:
  file = io.BytesIO()
  np.savez_compressed(file, **columns)
  return file.getvalue()


def verl_agent() -> bytes:
  return npz(verl_columns())


TEXTS = {
  "game24": game24,
  "tau_bench": tau_bench,
  "intercode": intercode,
  "swe_agent": swe_agent,
  "mini_swe_agent": mini_swe_agent,
  "verifiers": verifiers,
  "roll": roll,
  "verl_agent": verl_agent,
}
"""Name of the reader -> a valid log."""

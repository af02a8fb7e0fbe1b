"""A small kitchen written by hand, to check texts against."""

from crbc_jax.envs.alfworld import make_game

GOALS = {
  "place": """(:goal (and (exists (?r - receptacle) (exists (?o - object) (and
    (inReceptacle ?o ?r) (objectType ?o AppleType)
    (receptacleType ?r FridgeType))))))""",
  "hot": """(:goal (and (exists (?r - receptacle) (exists (?o - object) (and
    (heatable ?o) (objectType ?o AppleType) (receptacleType ?r CounterTopType)
    (isHot ?o) (inReceptacle ?o ?r))))))""",
  "two": """(:goal (and (exists (?r - receptacle) (exists (?a - object) (and
    (objectType ?a AppleType) (receptacleType ?r FridgeType)
    (inReceptacle ?a ?r) (exists (?b - object) (and (not (= ?a ?b))
    (objectType ?b AppleType) (receptacleType ?r FridgeType)
    (inReceptacle ?b ?r))))))))""",
  "light": """(:goal (and
    (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and
      (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot)
      (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and
      (objectType ?o AppleType) (holds ?a ?o)))))""",
}

KITCHEN = """(define (problem kitchen)
(:domain alfred)
(:objects
  agent1 - agent
  AppleType KnifeType MugType DeskLampType - otype
  CounterTopType FridgeType MicrowaveType SinkBasinType - rtype
  Apple_bar_1 Apple_bar_2 Knife_bar_1 Mug_bar_1 DeskLamp_bar_1 - object
  CounterTop_bar_1 CounterTop_bar_2 Fridge_bar_1 Microwave_bar_1 - receptacle
  Sink_bar_1_bar_SinkBasin - receptacle
  start wall window corner - location
)
(:init
  (atLocation agent1 start) ; in the middle
  (receptacleType CounterTop_bar_1 CounterTopType)
  (receptacleType CounterTop_bar_2 CounterTopType)
  (receptacleType Fridge_bar_1 FridgeType)
  (receptacleType Microwave_bar_1 MicrowaveType)
  (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType)
  (receptacleAtLocation CounterTop_bar_1 wall)
  (receptacleAtLocation CounterTop_bar_2 wall)
  (receptacleAtLocation Fridge_bar_1 window)
  (receptacleAtLocation Microwave_bar_1 corner)
  (receptacleAtLocation Sink_bar_1_bar_SinkBasin wall)
  (openable Fridge_bar_1) (openable Microwave_bar_1)
  (canContain CounterTopType AppleType) (canContain CounterTopType KnifeType)
  (canContain CounterTopType MugType) (canContain FridgeType AppleType)
  (canContain CounterTopType DeskLampType)
  (objectType Apple_bar_1 AppleType) (objectType Apple_bar_2 AppleType)
  (objectType Knife_bar_1 KnifeType) (objectType Mug_bar_1 MugType)
  (objectType DeskLamp_bar_1 DeskLampType)
  (pickupable Apple_bar_1) (pickupable Apple_bar_2)
  (pickupable Knife_bar_1) (pickupable Mug_bar_1) (pickupable DeskLamp_bar_1)
  (cleanable Apple_bar_1) (heatable Apple_bar_1) (coolable Apple_bar_1)
  (heatable Apple_bar_2) (sliceable Apple_bar_1)
  (isReceptacleObject Mug_bar_1) (toggleable DeskLamp_bar_1)
  (inReceptacle Apple_bar_1 CounterTop_bar_1)
  (inReceptacle Apple_bar_2 Microwave_bar_1)
  (inReceptacle Knife_bar_1 CounterTop_bar_1)
  (inReceptacle Mug_bar_1 Fridge_bar_1)
  (inReceptacle DeskLamp_bar_1 CounterTop_bar_2)
  (objectAtLocation Apple_bar_1 wall) (objectAtLocation Apple_bar_2 corner)
  (objectAtLocation Knife_bar_1 wall) (objectAtLocation Mug_bar_1 window)
  (objectAtLocation DeskLamp_bar_1 wall)
)
"""


def kitchen(goal="place", text="put a apple in fridge"):
  return make_game(f"{KITCHEN}{GOALS[goal]})", text, id=f"kitchen/{goal}/0")


def play(env, *commands):
  """The texts that follow the commands, all of them admissible."""
  texts = []
  for command in commands:
    assert command in env.last.commands, (command, env.last.commands)
    texts.append(env.step(command).text)
  return texts

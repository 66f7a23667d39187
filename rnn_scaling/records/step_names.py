"""The names in which a record tells what is inside of a step: phases of operators, parts of a tower's time."""

INPUT, FORWARD, BACKWARD, EXCHANGE, UPDATE, OTHER = "input", "forward", "backward", "exchange", "update", "other"
PHASES = (INPUT, FORWARD, BACKWARD, EXCHANGE, UPDATE, OTHER)

OWN = (FORWARD, BACKWARD, UPDATE, INPUT, OTHER)  # a tower's compute, in order of precedence
SHARED_OWN = (UPDATE, INPUT, OTHER)  # what is done once for all towers
EXPOSED, STARVED, WAITS, IDLE = "exchange_exposed", "waits_for_input", "waits_for_towers", "idle"
PARTS = (*OWN, *(f"shared_{phase}" for phase in SHARED_OWN), EXPOSED, STARVED, WAITS, IDLE)
LETTERS = "fbuioUIOxnw."  # one a part, in the order of PARTS: how a timeline is written
TIMELINE_BINS = 400  # letters of a timeline

COLLECTIVES = ("Collective", "Nccl")  # begin the types of collective operators
# What TensorFlow's executor makes a while loop of: they move values and decide, and compute nothing on any device.
CONTROL_FLOW = ("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch")

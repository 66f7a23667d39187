"""Findings of the audit, and what a series of a table implies."""

TEMPLATES = {
    "audit-number": "{column} is {printed} in {row}, but {relation} gives {fits}.",
    "audit-one-of": "{relation} does not hold. Either {choices} is wrong.",
    "audit-exchange": "{places:list} are exchanged: then {relation} holds.",
    "audit-numbers": "{relation} does not hold. These are wrong: {places:list}.",
    "audit-column-per-device": "{column} follows from rates of all devices, but the rates printed are of one device.",
    "audit-column-inverse": "{column} is the inverse of what its header says.",
    "audit-column-not-divided": "{column} equals the speedup: it is not divided by the number of devices.",
    "audit-column-other-baseline": "{column} is relative to another row than its header or its first 1 says.",
    "audit-column": "{column} does not follow from the other columns: {relation} fails in most rows.",
    "audit-superlinear": "{column} is {printed} in {row}: more per device than any other row. They suggest {fits}.",
    "audit-below": "{column} is {printed} in {row}, far below the rows before and after it, which have {fits}.",
    "audit-copy": "{column} is {printed} in {row} and in {other}: two measurements rarely agree in every digit.",
    "audit-record": "{column} is {printed}, but {row} is {fits}: the record was changed after the run.",
    "audit-hint": "Possible slip: {hint}.",
    "audit-best": "Fastest on {best:g}.",
    "audit-knee": "Beyond {knee:g} devices, each further one adds less than half as much as the first ones.",
    "audit-fall": "From {before:g} to {after:g} devices the speed falls by {fall:.0f} %.",
}

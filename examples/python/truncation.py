"""The length of episodes is the key `lengths` of an estimator, of windows `trunc_length`."""

import lopt

LENGTHS = [
    {"type": "ConstantTruncationSchedule", "total_length": 30},
    {"type": "LogUniformLengthSchedule", "min_length": 10, "max_length": 100},
    {"type": "ScheduledTruncationSchedule", "outer_steps": [0, 50], "lengths": [10, 100]},
]

for lengths in LENGTHS:
    training = lopt.meta_train({
        "learned_optimizer": {"type": "LearnableAdam", "learning_rate": 0.1},
        "estimators": [{
            "type": "TruncatedPES",
            "task": {"type": "FixedDimQuadraticFamily", "dim": 5},
            "num_tasks": 8,
            "trunc_length": 20,
            "lengths": lengths,
            "random_initial_iteration_offset": 10,
        }],
        "meta_steps": 100,
    })
    (counts,) = training.totals.values()
    mean = counts["inner_steps"] / counts["episodes_ended"]
    print(f"{lengths['type']}: {counts['inner_steps']:,} inner steps, "
          f"{counts['episodes_ended']} episodes, one for every {mean:.0f} steps")

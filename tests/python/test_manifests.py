"""Tests of the manifests of examples/cluster against the APIs' fields."""

import copy
import unittest

from manifests import REPOSITORY, SCHEMAS, jsonschema, kind_of, mismatches, problems, schema_of, yaml

FILES = sorted((REPOSITORY / "examples/cluster").glob("*.yaml"))
OWN_NAMES = {"labels", "matchLabels", "annotations", "nodeSelector", "stringData"}  # their keys are the user's


def load(path):
    return list(yaml.safe_load_all(path.read_text()))


def keys_of(value, path=()):
    """The paths of all keys that the API names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            if key not in OWN_NAMES and not (key == "selector" and "matchLabels" not in inner):
                yield from keys_of(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from keys_of(inner, (*path, index))


def changed(manifest, path, change):
    """A copy in which `change` was called with the mapping that holds the last key of the path, and that key."""
    manifest = copy.deepcopy(manifest)
    holder = manifest
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return manifest


def misspell(holder, key):
    holder[key + "s"] = holder.pop(key)


class Manifests(unittest.TestCase):
    def test_each_is_what_its_schema_and_its_other_parts_say(self):
        self.assertEqual([path.name for path in FILES],
                         ["elastic.yaml", "kubeflow-elastic.yaml", "kubeflow-mpi.yaml", "mpi-job.yaml"])
        for path in FILES:
            with self.subTest(path.name):
                manifests = load(path)
                self.assertEqual([line for manifest in manifests for line in problems(manifest)], [])
                self.assertEqual(mismatches(manifests), [])

    def test_each_says_that_no_cluster_has_met_it(self):
        for path in FILES:
            comment = path.read_text().split("\napiVersion")[0].replace("\n# ", " ")
            self.assertRegex(comment, "has no Kubernetes cluster to try it on", path.name)

    def test_any_misspelt_field_is_an_error(self):
        tried = 0
        for path in FILES:
            for manifest in load(path):
                for key in keys_of(manifest):
                    tried += 1
                    self.assertNotEqual(problems(changed(manifest, key, misspell)), [], f"{path.name} {key}")
        self.assertGreater(tried, 300)

    def test_wrong_kinds_of_values_are_errors(self):
        job, deployment, runtime, trainjob = (
            next(manifest for path in FILES for manifest in load(path) if manifest["kind"] == kind)
            for kind in ("Job", "Deployment", "ClusterTrainingRuntime", "TrainJob"))
        replicated = ("spec", "template", "spec", "replicatedJobs", 0)
        for manifest, path, value in [
                (trainjob, ("metadata", "name"), "1st"),
                (trainjob, ("apiVersion",), "trainer.kubeflow.org/v1"),
                (trainjob, ("spec", "runtimeRef"), {}),
                (runtime, ("spec", "mlPolicy", "numNodes"), "1"),
                (runtime, ("spec", "template", "spec", "successPolicy", "operator"), "all"),
                (runtime, (*replicated, "replicas"), 2),
                (job, ("spec", "template", "spec", "restartPolicy"), "onFailure"),
                (deployment, ("spec", "template", "spec", "containers"), []),
                (deployment, ("spec", "template", "spec", "containers", 0, "args", 4), 4711),
                (deployment, ("spec", "template", "spec", "containers", 0, "resources", "limits", "memory"), "4GB"),
                (deployment, ("spec", "template", "spec", "volumes", 0, "secret", "defaultMode"), 1024)]:
            self.assertEqual(problems(manifest), [])
            wrong = changed(manifest, path, lambda holder, key: holder.__setitem__(key, value))
            self.assertNotEqual(problems(wrong), [], f"{path} = {value}")

    def test_names_of_nothing_are_found(self):
        for name, path, value, wanted in [
                ("kubeflow-mpi.yaml", (1, "spec", "runtimeRef", "name"), "lopt", "runtime lopt is none of"),
                ("kubeflow-mpi.yaml", (0, "spec", "template", "spec", "replicatedJobs", 0, "name"), "nodes", "MPI wants the jobs"),
                ("kubeflow-mpi.yaml", (0, "spec", "template", "spec", "replicatedJobs", 1, "template", "metadata", "labels"),
                 {"app": "lopt"}, "are [], not one"),
                ("kubeflow-mpi.yaml", (0, "spec", "template", "spec", "replicatedJobs", 1, "template", "spec", "template", "spec",
                                       "containers", 0, "name"), "launcher", "has no container node"),
                ("kubeflow-elastic.yaml", (0, "spec", "template", "spec", "successPolicy", "targetReplicatedJobs"), ["node"],
                 "which is none of"),
                ("elastic.yaml", (0, "spec", "selector"), {"app": "learner"}, "selects"),
                ("elastic.yaml", (2, "spec", "template", "spec", "volumes", 0, "name"), "keys", "mounts ['tls'], volumes ['keys']")]:
            manifests = load(REPOSITORY / "examples/cluster" / name)
            wrong = changed(manifests, path, lambda holder, key: holder.__setitem__(key, value))
            self.assertTrue(any(wanted in line for line in mismatches(wrong)), f"{name} {path}: {mismatches(wrong)}")

    def test_the_schemas_are_schemas_and_each_is_used(self):
        for kind in set(SCHEMAS) - {"$defs"}:
            jsonschema.Draft202012Validator.check_schema(schema_of(kind))
        used = {kind_of(manifest) for path in FILES for manifest in load(path)}
        of_chart = {"v1 Secret", "apps/v1 Deployment", "policy/v1 PodDisruptionBudget", "autoscaling/v2 HorizontalPodAutoscaler"}
        self.assertEqual(set(SCHEMAS) - {"$defs"}, used | of_chart)


if __name__ == "__main__":
    unittest.main()

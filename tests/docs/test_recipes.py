"""Recipes that need more than a test has: manifests, DAGs, lines of cron, table formats."""

from __future__ import annotations

import ast
import copy
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.docs.pages import ROOT, blocks_of, check_cassieq

#: The releases of Kubernetes that are named by docs/kubernetes.md.
RELEASES = ("1.33", "1.34", "1.35", "1.36", "1.37")
MANIFESTS = [
    pytest.param(document, id=f"{file.stem}-{document['kind']}")
    for file in sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]
DOCUMENTS = [each.values[0] for each in MANIFESTS]
DAGS = ROOT / "examples" / "airflow" / "cassieq_repair.py"


def pod_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The template of the pods of a Deployment or CronJob."""
    spec = document.get("spec", {})
    found: dict[str, Any] | None = spec.get("jobTemplate", {"spec": spec})["spec"].get("template")
    return found


PODS = [pod for pod in map(pod_of, DOCUMENTS) if pod is not None]


def parts_with(document: Any, key: str) -> Iterator[Any]:
    """What a document has under a key, anywhere."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from parts_with(value, key)
    elif isinstance(document, list):
        for each in document:
            yield from parts_with(each, key)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_valid_for_each_release(manifest: dict[str, Any], release: str):
    kubernetes_validate.validate(manifest, release, strict=True)


def test_a_field_that_there_is_not_would_be_noticed():
    (gateway,) = (
        it
        for it in DOCUMENTS
        if it["metadata"]["name"] == "cassieq-gateway" and it["kind"] == "Deployment"
    )
    wrong = copy.deepcopy(gateway)
    wrong["spec"]["template"]["spec"]["containers"][0]["readyProbe"] = {}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, RELEASES[0], strict=True)


def test_the_page_names_the_releases_that_are_checked():
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")

    assert f"Kubernetes {RELEASES[0]} to {RELEASES[-1]}" in page


def test_the_commands_and_settings_of_the_manifests_are_real(tmp_path: Path):
    (settings,) = (it["data"]["cassieq.toml"] for it in DOCUMENTS if it["kind"] == "ConfigMap")
    file = tmp_path / "cassieq.toml"
    file.write_text(settings, encoding="utf-8")
    containers = [container for pod in PODS for container in pod["spec"]["containers"]]
    ours = [each for each in containers if "/cassieq:" in each["image"]]

    for container in ours:
        given = " ".join(container["args"])
        assert "--config=/etc/cassieq/cassieq.toml" in given
        check_cassieq(given.replace("/etc/cassieq/cassieq.toml", str(file)).split())

    assert len(ours) == 4


def test_selectors_find_the_pods_and_volumes_are_there():
    labels = [pod["metadata"]["labels"] for pod in PODS]
    for document in DOCUMENTS:
        for selector in parts_with(document.get("spec", {}), "selector"):
            assert selector.get("matchLabels", selector) in labels

    for pod in PODS:
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_the_settings_that_pods_take_exist():
    names = {it["metadata"]["name"] for it in DOCUMENTS if it["kind"] == "ConfigMap"}

    assert {it["name"] for pod in PODS for it in parts_with(pod, "configMap")} == names


def test_the_dags_compile_and_their_commands_are_real():
    tree = ast.parse(DAGS.read_text(encoding="utf-8"))
    compile(tree, str(DAGS), "exec")
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    commands = [shlex.split(ast.literal_eval(each)) for each in returned if each is not None]

    assert [command[0] for command in commands] == ["cassieq", "spark-submit"]
    check_cassieq(commands[0][1:])


def test_the_lines_of_cron_have_five_times_and_real_commands():
    blocks = [it.text for it in blocks_of("docs/scheduling.md") if "* * *" in it.text]
    lines = [line for text in blocks for line in text.splitlines() if not line.startswith("#")]

    assert len(lines) == 4
    for line in lines:
        *times, user, command = line.split(maxsplit=6)
        assert all(re.fullmatch(r"[\d*/]+", each) for each in times), line
        assert user in {"cassieq", "spark"}
        if found := re.search(r"/bin/cassieq (.*)$", command):
            check_cassieq(shlex.split(found[1]))


def test_the_program_for_delta_s_own_format_compiles():
    program = (ROOT / "examples" / "tables" / "delta.py").read_text(encoding="utf-8")

    compile(program, "delta", "exec")


def test_the_page_names_the_versions_that_the_programs_take():
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    delta, delta_rs, iceberg = (
        (ROOT / "examples" / "tables" / f"{name}.py").read_text(encoding="utf-8")
        for name in ("delta", "delta_rs", "iceberg")
    )

    assert "io.delta:delta-spark_4.2_2.13:4.4.0 " in delta
    assert "| 4.4.0, `io.delta:delta-spark_4.2_2.13` (Maven Central) |" in page
    for name, program, text in (
        ("deltalake", delta_rs, "| `deltalake` {} (PyPI) |"),
        ("pyiceberg", iceberg, "PyIceberg {} "),
    ):
        version = re.search(rf"^{name}==(\S+)", pins, re.MULTILINE)[1]
        assert re.search(rf"'{name}(\[sql-sqlite\])?=={re.escape(version)}'", program)
        assert text.format(version) in page

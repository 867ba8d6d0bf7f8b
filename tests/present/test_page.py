"""Modules in one script, and a page that carries its data."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tbmem import web
from tbmem.present.page import as_inline_json, bundle, key_of, web_page
from tests.present.pages import Look, assert_it_is_offline

MODULES = {
    "index.js": 'import { one as first, two } from "./a.js";\nimport {\n  Three,\n} from "./sub/b.js";\n\n'
    "export async function render() {\n  console.log(first, two(), new Three().four);\n}\n",
    "a.js": 'import { Three } from "./sub/b.js";\nexport const one = "import { x } from nowhere";\n'
    "export function two() {\n  return new Three().four + 1;\n}\n",
    "sub/b.js": 'import { five } from "../c.js";\nexport class Three {\n  four = five;\n}\n',
    "c.js": "const hidden = 5;\nexport const five = hidden;\n",
    "unused.js": "throw new Error();\n",
}


def test_each_module_runs_once_after_what_it_imports() -> None:
    script = bundle(MODULES, "index.js")

    places = [script.index(f'$modules["{name}"] = ') for name in ("c.js", "sub/b.js", "a.js", "index.js")]
    assert places == sorted(places)
    assert "unused" not in script
    node = shutil.which("node")
    if node:
        done = subprocess.run(
            [node, "-e", f"{script}.render()"], capture_output=True, text=True, check=True, timeout=30
        )
        assert done.stdout == "import { x } from nowhere 6 5\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('import x from "./a.js";', "not provided for: import x"),
        ('import * as x from "./a.js";', "not provided for"),
        ("export default 3;", "not provided for: export default"),
        ("export let x = 3;", "not provided for: export let"),
        ('import { x } from "https://example.org/x.js";', "only relative paths"),
        ('import { x } from "./missing.js";', "imports missing.js, which is not there"),
        ('import { x } from "./index.js";', "import each other"),
    ],
)
def test_what_is_not_provided_for(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle({"index.js": source, "a.js": ""}, "index.js")


def test_the_front_end_can_be_bundled() -> None:
    modules = web.files(".js")

    script = bundle(modules, "index.js")

    assert script.count("$modules[") > len(modules)


def test_the_files_of_the_front_end_and_no_other() -> None:
    assert "style.css" in web.files(".css")
    assert {"index.js", "views/peak.js"} <= web.files(".js").keys()
    assert all(name.endswith(".js") for name in web.files(".js"))


def test_data_stays_text() -> None:
    evil = '</script><script>alert(1)</script><!-- \u2028 "'
    answers = {"index": {"runs": [{"run": evil}]}, "timeline?x=1": "index"}

    page = web_page(f"<title>{evil}", answers)

    look = Look(page)
    assert_it_is_offline(look)
    assert look.charts == [answers]
    assert page.count("<script") == 2
    assert json.loads(as_inline_json(answers)) == answers


def test_what_is_no_finite_number_is_null() -> None:
    values = {"x": [float("nan"), 1.5, {"y": float("-inf")}]}

    assert json.loads(as_inline_json(values)) == {"x": [None, 1.5, {"y": None}]}


def test_keys() -> None:
    assert key_of("index", {}) == "index"
    assert key_of("live", {"x": "time", "run": ["b", "a/ c"]}) == "live?run=b&run=a/ c&x=time"

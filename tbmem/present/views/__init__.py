"""JSON answers of the Memory tab: one per route, the same for the tab and ``report.html``.

The Memory tab fetches the answers from routes of the plugin; ``report.html`` contains them. The functions in this
package declare the answers, with a comment beside a key whose meaning is not in its name; ``run_schema`` has the types
of entries that several share. Sizes are bytes, times Unix seconds, unless the field's name says otherwise.

| route | parameters (identity **bold**) | answer |
|---|---|---|
| ``data/index`` | | ``overview.index_view`` |
| ``data/progress`` | | ``work``: the files that are being read; POST ``data/cancel?work=NUMBER`` stops one |
| ``data/overview`` | **run** (repeated; without one the latest twenty) | ``runs`` of ``overview.overview_of`` |
| ``data/live`` | **run** (repeated), x=step/time, from, to, points, after (a ``cursor``: only what is new) | \
``series`` of ``live.live_series``, ... |
| ``data/ranks`` | **run**, recordings=1 (also their peaks) | ``overview.rank_columns`` |
| ``data/compare`` | **before**, **after** (runs), before_file, after_file | ``comparison.compare_view`` |
| ``data/sides`` | **before**, **after**, before_file, after_file | ``comparison.sides_view`` |
| ``data/estimate`` | **run**, file | ``prediction.measured_view``, and the estimates to lay over it |
| ``data/prediction`` | **run**, **file** | ``prediction.prediction_view`` |
| ``data/timeline`` | **run**, **file**, **device**, axis, from, to, points, largest | ``timeline.timeline_view`` |
| ``data/reserved`` | **run**, **file**, **device**, axis, from, to, points, largest | ``reserved.reserved_view`` |
| ``data/segment`` | **run**, **file**, **device**, **segment** | ``reserved.segment_view`` |
| ``data/range`` | **run**, **file**, **device**, axis, from, to, limit | ``range.brushed_view`` |
| ``data/state`` | **run**, **file**, **device**, axis, at (x), size (a request) | ``state.state_view`` |
| ``data/events`` | **run**, **file**, **device**, axis, from, to, rare=1 (no allocs, frees), search, sort, order, \
offset, limit | ``events.events_view`` |
| ``data/stack`` | **run**, **file**, **row** | ``peak.stack_view`` |
| ``data/peak``, ... | **run**, **file**, **device** | each of ``DEVICE_VIEWS`` in ``offline/queries/answers.py`` |
| ``data/tensors`` | **run**, **file**, **device**, search, category, sort, order, offset, limit | \
``tensors.tensors_view`` |
| ``data/operators`` | **run**, **file**, **device**, axis, from, to | ``operators.operators_view`` |
| ``page.js?v=<version>`` | | the front end as one module that exports ``render()``, cached for a year |
| ``page.css`` | | its style sheets |

- Every URL is relative to the page's base. ``file`` is relative to the run's folder. Without ``device`` the answer is
  of the main one, and its ``devices`` names all. ``axis`` is ``time`` (x is milliseconds since the recording began) or
  ``event`` (x is the number of the event); without it, the one that shows more. ``from`` and ``to`` are in x.
- A refusal is no JSON: status 400 (a parameter is wrong), 403 (outside of the log folder), 404 (no such run or file),
  its body one line for people. An answer with ``empty`` says why there is nothing to draw, and how to get it.
- Large tables are columns: lists of one length under the names of the fields. ``null`` is 'not known'; there is no NaN.
- Search, sort and export of tables: ``sort`` is a column of the table, ``order`` is ``asc`` or ``desc``.

**In report.html** the answers are in ``<script type="application/json" id="tbmem-data">``, an object by key:
``view?name=value&name=value``, with parameters in alphabetical order, values not encoded, missing parameters left out
and a repeated parameter once for each value in the given order; without parameters just ``index``. A value that is a
string is the key of another answer. ``fetchView(view, params)`` looks up the complete key, then the key of the
identity parameters, then that without ``device``; otherwise it raises an error of kind 404. Therefore a zoom in a
report gets the whole answer again and draws a part of it, and a brushed range is summed from the bands of its
``allocations``. There, ``source`` of ``index`` is ``report``, and ``views`` lists the views of the page; without it,
the page has all. ``render()`` is called. The front end consists of plain ES modules in ``tbmem/web``: named exports,
relative imports, no top-level ``await``.
"""
